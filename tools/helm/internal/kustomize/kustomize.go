// Package kustomize builds kustomizations in memory, without plugins, disk and network.
package kustomize

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/redact"
)

// IsKustomization reports whether a folder has a kustomization file. Empty means the root.
func IsKustomization(files []bundle.File, folder string) bool {
	return slices.ContainsFunc(files, func(file bundle.File) bool {
		return path.Dir(file.Path) == path.Clean(folder) && slices.Contains(bundle.KustomizationNames, path.Base(file.Path))
	})
}

// Build returns the objects of the kustomization in a folder, which may refer to all files. The values, if there are any, are
// the data of a ConfigMap that its replacements can read. Messages contain no values.
//
// Kustomize keeps global state, so only one build may run at a time. Isolate must be called before.
func Build(files []bundle.File, folder string, values map[string]any) ([]bundle.Object, error) {
	folder = path.Clean(folder)
	checked := &check{tree: newTree(files), seen: map[string]bool{}}
	if err := checked.visit(folder); err != nil {
		return nil, err
	}
	prepared, err := prepare(checked.tree, folder, values)
	if err != nil {
		return nil, err
	}
	if checked.setsSchema {
		defer openapi.ResetOpenAPI()
	}
	built, err := krusty.MakeKustomizer(options()).Run(checked.tree.fileSystem(), path.Join("/", folder))
	if err != nil {
		message := redact.Message(err.Error(), append(checked.secrets, redact.Strings(values)...))
		return nil, &bundle.Error{File: prepared.file, Message: shortened(message)}
	}
	return objects(checked.tree, folder, built, prepared.keepOrigin)
}

func options() *krusty.Options {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	options.PluginConfig = types.DisabledPluginConfig()
	return options
}

// maxMessage is the maximum length of a message of kustomize, which may quote whole files.
const maxMessage = 1000

func shortened(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}

// objects returns the built objects with the files and lines that they come from.
func objects(tree tree, folder string, built resmap.ResMap, keepOrigin bool) ([]bundle.Object, error) {
	resources := built.Resources()
	found := make([]bundle.Object, 0, len(resources))
	for _, resource := range resources {
		file, line := place(tree, folder, resource)
		if !keepOrigin {
			if err := resource.SetOrigin(nil); err != nil {
				return nil, err
			}
		}
		text, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", resource.GetKind(), resource.GetName(), err)
		}
		object, err := bundle.NewObject(text, file, line)
		if err != nil {
			return nil, err
		}
		found = append(found, object)
	}
	return found, bundle.Check(found)
}

// place returns the file and line that a resource comes from. Generated resources come from the kustomization.
func place(tree tree, folder string, resource *resource.Resource) (string, int) {
	origin, err := resource.GetOrigin()
	if err != nil || origin == nil {
		return "", 0
	}
	if origin.Path == "" {
		return path.Join(folder, origin.ConfiguredIn), 0
	}
	file := path.Join(folder, origin.Path)
	return file, bundle.FindLine(tree.files[file], resource.GetKind(), resource.GetName())
}
