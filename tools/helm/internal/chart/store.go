// Package chart loads Helm charts, keeps them by digest and reads what they say about themselves.
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

// cacheBytes bounds the unpacked charts that are kept.
const cacheBytes = 64 << 20

// Store loads charts and keeps them by digest.
type Store struct {
	loaded *lru.Cache[*Chart]
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{loaded: lru.New[*Chart](cacheBytes, nil)}
}

// Chart is a loaded chart. It is never handed to Helm itself, which changes charts while it works: see Clone.
type Chart struct {
	original *helmchart.Chart
	// ReadsCapabilities says whether rendering depends on what the cluster is.
	ReadsCapabilities bool
}

// Load reads the package, or finds it by its digest without touching the disk.
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
		return nil, failure.Wrap(failure.InvalidPackage, err, "the package cannot be read: %v", reason(err))
	}
	sum := sha256.Sum256(data)
	if actual := "sha256:" + hex.EncodeToString(sum[:]); actual != digest {
		return nil, failure.New(failure.InvalidPackage, "the package's content is %s, and %s was asked for", actual, digest)
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

// reason leaves the path out: it is the machine's business.
func reason(err error) error {
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
