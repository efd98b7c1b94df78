// Package chart loads Helm charts, caches them by digest and reads their metadata.
package chart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/lru"
)

// cacheBytes is the maximum total size of the cached charts.
const cacheBytes = 64 << 20

// Store loads charts and caches them by digest.
type Store struct {
	loaded *lru.Cache[*Chart]
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{loaded: lru.New[*Chart](cacheBytes, nil)}
}

// Chart is a loaded chart. Helm gets only clones of it (see Clone), because Helm changes the charts that it processes.
type Chart struct {
	original *helmchart.Chart
	// ReadsCapabilities reports whether the chart uses .Capabilities.
	ReadsCapabilities bool
}

// Load returns the chart of a package, from the cache or from disk.
func (s *Store) Load(pkg *toolv1.Package) (*Chart, error) {
	digest := pkg.GetDigest()
	if !strings.HasPrefix(digest, "sha256:") {
		return nil, failure.New(failure.InvalidPackage, "the package has no sha256 digest")
	}
	if chart, ok := s.loaded.Get(digest); ok {
		return chart, nil
	}
	data, err := os.ReadFile(pkg.GetPath())
	if err != nil {
		return nil, failure.Wrap(failure.InvalidPackage, err, "reading the package failed: %v", withoutPath(err))
	}
	sum := sha256.Sum256(data)
	if actual := "sha256:" + hex.EncodeToString(sum[:]); actual != digest {
		return nil, failure.New(failure.InvalidPackage, "the package has digest %s, expected %s", actual, digest)
	}
	original, err := loader.LoadArchive(bytes.NewReader(data))
	if err != nil {
		return nil, failure.Wrap(failure.InvalidPackage, err, "the package is not a Helm chart archive: %v", err)
	}
	if err := checkSchemas(original); err != nil {
		return nil, err
	}
	chart := &Chart{original: original, ReadsCapabilities: readsCapabilities(original)}
	return s.loaded.Add(digest, chart, size(original)), nil
}

// withoutPath returns err without the local path of the file.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

func size(chart *helmchart.Chart) int {
	total := 4096
	for _, file := range chart.Raw {
		total += len(file.Data) + len(file.Name)
	}
	for _, dependency := range chart.Dependencies() {
		total += size(dependency)
	}
	return total
}
