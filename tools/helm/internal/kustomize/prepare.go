package kustomize

import (
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
	kubeyaml "sigs.k8s.io/yaml"

	"chandler.dev/tools/helm/internal/bundle"
)

const (
	// valuesName is the name of the ConfigMap with the values.
	valuesName = "chandler-values"
	// valuesFile is the file with this ConfigMap, in the folder of the kustomization.
	valuesFile = valuesName + ".generated.yaml"
)

// prepared is the kustomization to build.
type prepared struct {
	file string
	// keepOrigin reports whether the kustomization itself asks for the annotations that show the origin of an object.
	keepOrigin bool
}

// prepare adds the values to the kustomization of a folder, and makes kustomize report the origins of objects.
func prepare(tree tree, folder string, values map[string]any) (prepared, error) {
	file, err := tree.kustomizationIn(folder)
	if err != nil {
		return prepared{}, err
	}
	fields, err := parseKustomization(file, tree.files[file])
	if err != nil {
		return prepared{}, err
	}
	asked := scalars(fieldValues(fields, "buildMetadata")...)
	keep := slices.ContainsFunc(asked, func(node *yaml.Node) bool { return node.Value == types.OriginAnnotations })
	if !keep {
		appendTo(fields, "buildMetadata", types.OriginAnnotations)
	}
	if len(values) > 0 {
		if err := addValues(tree, path.Join(folder, valuesFile), values); err != nil {
			return prepared{}, err
		}
		appendTo(fields, "resources", valuesFile)
	}
	content, err := yaml.Marshal(fields)
	if err != nil {
		return prepared{}, err
	}
	tree.files[file] = content
	return prepared{file: file, keepOrigin: keep}, nil
}

// addValues adds a file with a ConfigMap whose data are the values, with their types. The annotation makes kustomize leave it
// out of the result.
func addValues(tree tree, file string, values map[string]any) error {
	if _, exists := tree.files[file]; exists {
		return &bundle.Error{File: file, Message: "this name is reserved for the values of the cluster: rename the file"}
	}
	content, err := kubeyaml.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata": map[string]any{
			"name":        valuesName,
			"annotations": map[string]any{konfig.IgnoredByKustomizeAnnotation: "true"},
		},
		"data": values,
	})
	if err != nil {
		return err
	}
	tree.files[file] = content
	return nil
}

// appendTo adds a string to the list in a field of a mapping.
func appendTo(fields *yaml.Node, field, value string) {
	item := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	for i := 0; i+1 < len(fields.Content); i += 2 {
		if !strings.EqualFold(fields.Content[i].Value, field) {
			continue
		}
		list := resolve(fields.Content[i+1])
		if list.Kind != yaml.SequenceNode {
			list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
			fields.Content[i+1] = list
		}
		list.Content = append(list.Content, item)
		return
	}
	fields.Content = append(fields.Content,
		&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: field},
		&yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{item}})
}
