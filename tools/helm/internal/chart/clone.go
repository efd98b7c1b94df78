package chart

import (
	"maps"
	"slices"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
)

// Clone returns a copy of the chart for Helm, which removes disabled subcharts, renames aliases and changes values. The
// copy shares the file contents, which Helm does not change.
func (c *Chart) Clone() *helmchart.Chart { return clone(c.original) }

func clone(original *helmchart.Chart) *helmchart.Chart {
	copied := &helmchart.Chart{
		Raw:           slices.Clone(original.Raw),
		Metadata:      cloneMetadata(original.Metadata),
		Lock:          original.Lock,
		Templates:     slices.Clone(original.Templates),
		Values:        cloneMap(original.Values),
		Schema:        original.Schema,
		SchemaModTime: original.SchemaModTime,
		Files:         slices.Clone(original.Files),
		ModTime:       original.ModTime,
	}
	for _, dependency := range original.Dependencies() {
		copied.AddDependency(clone(dependency))
	}
	return copied
}

func cloneMetadata(original *helmchart.Metadata) *helmchart.Metadata {
	copied := *original
	copied.Annotations = maps.Clone(original.Annotations)
	copied.Dependencies = make([]*helmchart.Dependency, 0, len(original.Dependencies))
	for _, dependency := range original.Dependencies {
		if dependency == nil {
			continue
		}
		clone := *dependency
		clone.ImportValues = slices.Clone(dependency.ImportValues)
		copied.Dependencies = append(copied.Dependencies, &clone)
	}
	if original.Dependencies == nil {
		copied.Dependencies = nil
	}
	return &copied
}

func cloneMap(original map[string]any) map[string]any {
	if original == nil {
		return nil
	}
	copied := make(map[string]any, len(original))
	for key, value := range original {
		copied[key] = cloneValue(value)
	}
	return copied
}

func cloneValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		return cloneMap(value)
	case []any:
		copied := make([]any, len(value))
		for i, item := range value {
			copied[i] = cloneValue(item)
		}
		return copied
	default:
		return value
	}
}
