package chart

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	helm "helm.sh/helm/v4/pkg/chart"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// Info returns the metadata of the chart.
func (c *Chart) Info() *toolv1.PackageInfo {
	metadata := c.original.Metadata
	info := &toolv1.PackageInfo{
		Name:              metadata.Name,
		Version:           metadata.Version,
		AppVersion:        metadata.AppVersion,
		Description:       metadata.Description,
		Home:              metadata.Home,
		Icon:              metadata.Icon,
		Keywords:          metadata.Keywords,
		Kubernetes:        metadata.KubeVersion,
		ValuesSchema:      c.original.Schema,
		DefaultValues:     rawFile(c.original, "values.yaml"),
		Readme:            readme(c.original),
		ReadsCapabilities: c.ReadsCapabilities,
		Crds:              crdNames(c.original),
		Annotations:       metadata.Annotations,
		Deprecated:        metadata.Deprecated,
	}
	for _, maintainer := range metadata.Maintainers {
		if maintainer != nil {
			info.Maintainers = append(info.Maintainers,
				&toolv1.Maintainer{Name: maintainer.Name, Email: maintainer.Email, Url: maintainer.URL})
		}
	}
	for _, dependency := range metadata.Dependencies {
		if dependency != nil {
			info.Dependencies = append(info.Dependencies, &toolv1.Dependency{
				Name:       dependency.Name,
				Version:    dependency.Version,
				Repository: dependency.Repository,
				Condition:  dependency.Condition,
			})
		}
	}
	return info
}

// CheckInstallable returns an error if the chart is a library chart or lacks dependencies.
func (c *Chart) CheckInstallable() error {
	metadata := c.original.Metadata
	if metadata.Type != "" && metadata.Type != "application" {
		return failure.New(failure.InvalidPackage,
			"chart %s has type %s: only application charts can be installed", metadata.Name, metadata.Type)
	}
	dependencies := make([]helm.Dependency, 0, len(metadata.Dependencies))
	for _, dependency := range metadata.Dependencies {
		dependencies = append(dependencies, dependency)
	}
	if err := action.CheckDependencies(c.original, dependencies); err != nil {
		return failure.Wrap(failure.InvalidPackage, err, "chart %s lacks dependencies: %v", metadata.Name, err)
	}
	return nil
}

// KubeVersion returns the chart's constraint on the Kubernetes version. Empty means any version.
func (c *Chart) KubeVersion() string { return c.original.Metadata.KubeVersion }

// HasCRDs reports whether the chart or a subchart has files in crds/.
func (c *Chart) HasCRDs() bool { return len(c.original.CRDObjects()) > 0 }

func rawFile(chart *helmchart.Chart, name string) string {
	for _, file := range chart.Raw {
		if file.Name == name {
			return string(file.Data)
		}
	}
	return ""
}

func readme(chart *helmchart.Chart) string {
	for _, file := range chart.Files {
		if strings.EqualFold(file.Name, "readme.md") || strings.EqualFold(file.Name, "readme.txt") ||
			strings.EqualFold(file.Name, "readme") {
			return string(file.Data)
		}
	}
	return ""
}

func crdNames(chart *helmchart.Chart) []string {
	var names []string
	for _, crd := range chart.CRDObjects() {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(crd.File.Data)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) || err != nil {
				break
			}
			var head struct {
				Kind     string `json:"kind"`
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if yaml.Unmarshal(document, &head) == nil && head.Kind == "CustomResourceDefinition" {
				names = append(names, head.Metadata.Name)
			}
		}
	}
	return names
}
