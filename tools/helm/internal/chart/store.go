// Package chart loads Helm charts, caches them by digest and reads their metadata.
package chart

import (
	"bytes"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/packagefile"
)

// cacheBytes is the maximum total size of the cached charts.
const cacheBytes = 64 << 20

// Store loads charts and caches them by digest.
type Store struct {
	charts *packagefile.Cache[*Chart]
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{charts: packagefile.NewCache[*Chart](cacheBytes)}
}

// Chart is a loaded chart. Helm gets only clones of it (see Clone), because Helm changes the charts that it processes.
type Chart struct {
	original *helmchart.Chart
	// ReadsCapabilities reports whether the chart uses .Capabilities.
	ReadsCapabilities bool
}

// Empty returns a chart without files, for a release whose objects do not come from templates.
func Empty(metadata *helmchart.Metadata) *Chart {
	return &Chart{original: &helmchart.Chart{Metadata: metadata}}
}

// Load returns the chart of a package, from the cache or from disk.
func (s *Store) Load(pkg *toolv1.Package) (*Chart, error) {
	return s.charts.Load(pkg, func(content []byte) (*Chart, int, error) {
		original, err := loader.LoadArchive(bytes.NewReader(content))
		if err != nil {
			return nil, 0, failure.Wrap(failure.InvalidPackage, err, "the package is not a Helm chart archive: %v", err)
		}
		if err := checkSchemas(original); err != nil {
			return nil, 0, err
		}
		return &Chart{original: original, ReadsCapabilities: readsCapabilities(original)}, size(original), nil
	})
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
