// Package packagefile reads packages from the local disk.
package packagefile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/lru"
)

// Cache caches what is loaded from packages by their digests.
type Cache[V any] struct {
	loaded *lru.Cache[V]
}

// NewCache returns an empty cache for packages of at most limit bytes in total.
func NewCache[V any](limit int) *Cache[V] {
	return &Cache[V]{loaded: lru.New[V](limit, nil)}
}

// Load returns the value of a package from the cache, or calls load with the content of its file. load returns the value and
// its size in bytes.
func (c *Cache[V]) Load(pkg *toolv1.Package, load func(content []byte) (V, int, error)) (V, error) {
	var none V
	digest := pkg.GetDigest()
	if !strings.HasPrefix(digest, "sha256:") {
		return none, failure.New(failure.InvalidPackage, "the package has no sha256 digest")
	}
	if value, ok := c.loaded.Get(digest); ok {
		return value, nil
	}
	content, err := read(pkg.GetPath(), digest)
	if err != nil {
		return none, err
	}
	value, size, err := load(content)
	if err != nil {
		return none, err
	}
	return c.loaded.Add(digest, value, size), nil
}

// read reads a file and checks its digest.
func read(path, digest string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, failure.Wrap(failure.InvalidPackage, err, "reading the package failed: %v", withoutPath(err))
	}
	sum := sha256.Sum256(content)
	if actual := "sha256:" + hex.EncodeToString(sum[:]); actual != digest {
		return nil, failure.New(failure.InvalidPackage, "the package has digest %s, expected %s", actual, digest)
	}
	return content, nil
}

// withoutPath returns err without the local path of the file.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
