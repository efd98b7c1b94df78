package bundle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/chart"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/packagefile"
)

// cacheBytes is the maximum total size of the cached bundles.
const cacheBytes = 64 << 20

// versionDigits is the number of digits of the digest in the version of a bundle.
const versionDigits = 12

// Store loads bundles and caches them by digest.
type Store struct {
	bundles *packagefile.Cache[*Bundle]
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{bundles: packagefile.NewCache[*Bundle](cacheBytes)}
}

// Bundle is a loaded bundle.
type Bundle struct {
	files []File
	// version distinguishes the contents of bundles.
	version string
	// readsCapabilities reports whether the files use .Capabilities if they are evaluated.
	readsCapabilities bool
}

// Load returns the bundle of a package, from the cache or from disk.
func (s *Store) Load(pkg *toolv1.Package) (*Bundle, error) {
	return s.bundles.Load(pkg, func(content []byte) (*Bundle, int, error) {
		files, err := Unpack(content)
		if err != nil {
			return nil, 0, failure.Wrap(failure.InvalidPackage, err, "the package is not a bundle of manifests: %v", err)
		}
		if len(files) == 0 {
			return nil, 0, failure.New(failure.InvalidPackage, "the bundle contains no manifests")
		}
		size := 0
		for _, file := range files {
			size += len(file.Content)
		}
		return newBundle(files, pkg.GetDigest()), size, nil
	})
}

func newBundle(files []File, digest string) *Bundle {
	hex := strings.TrimPrefix(digest, "sha256:")
	return &Bundle{
		files:   files,
		version: "0.0.0+" + hex[:min(versionDigits, len(hex))],
		readsCapabilities: slices.ContainsFunc(files, func(file File) bool {
			return chart.TemplateReadsCapabilities(file.Path, string(file.Content))
		}),
	}
}

func metadata(version string) *helmchart.Metadata {
	return &helmchart.Metadata{APIVersion: helmchart.APIVersionV2, Name: chartName, Version: version}
}

// Chart returns a chart without templates for a release with these values, so that the record of the release has no files.
func (b *Bundle) Chart(values map[string]any) *chart.Chart {
	empty := chart.Empty(metadata(b.version))
	empty.ReadsCapabilities = b.readsCapabilities && len(values) > 0
	return empty
}

// Info returns the metadata of the bundle.
func (b *Bundle) Info() *toolv1.PackageInfo {
	info := &toolv1.PackageInfo{
		Name:              chartName,
		Version:           b.version,
		Description:       fmt.Sprintf("Manifests in %d files", len(b.files)),
		ReadsCapabilities: b.readsCapabilities,
	}
	// A bundle whose files are templates can be parsed only with values.
	if objects, err := Parse(b.files); err == nil {
		for _, object := range objects {
			if object.IsCRD() {
				info.Crds = append(info.Crds, object.GetName())
			}
		}
	}
	return info
}

// Render returns the objects for a release. It evaluates templates only if there are values.
func (b *Bundle) Render(ctx context.Context, values map[string]any, release Release) ([]Object, error) {
	objects, err := Render(ctx, b.files, values, release)
	switch {
	case err == nil:
		return objects, nil
	case len(values) > 0:
		return nil, &failure.RenderError{Err: err}
	default:
		return nil, failure.Wrap(failure.InvalidPackage, err, "the bundle is invalid: %v", err)
	}
}

// Render returns the objects in files. It evaluates the files as templates only if there are values; then the lines of the
// objects are unknown.
func Render(ctx context.Context, files []File, values map[string]any, release Release) ([]Object, error) {
	if len(values) == 0 {
		return Parse(files)
	}
	evaluated, err := Evaluate(ctx, files, values, release)
	if err != nil {
		return nil, err
	}
	objects, err := Parse(evaluated)
	for i := range objects {
		objects[i].Line = 0
	}
	return objects, err
}
