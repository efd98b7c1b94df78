package kustomize

import (
	"fmt"
	"path"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"chandler.dev/tools/helm/internal/bundle"
)

// root is the path of the root folder.
const root = "."

// tree are the files that a kustomization may read.
type tree struct {
	files   map[string][]byte
	folders map[string]bool
}

func newTree(files []bundle.File) tree {
	t := tree{files: make(map[string][]byte, len(files)), folders: map[string]bool{root: true}}
	for _, file := range files {
		t.files[file.Path] = file.Content
		for folder := path.Dir(file.Path); !t.folders[folder]; folder = path.Dir(folder) {
			t.folders[folder] = true
		}
	}
	return t
}

// kustomizationIn returns the path of the kustomization file of a folder.
func (t tree) kustomizationIn(folder string) (string, error) {
	var found []string
	for _, name := range bundle.KustomizationNames {
		if _, exists := t.files[path.Join(folder, name)]; exists {
			found = append(found, path.Join(folder, name))
		}
	}
	switch len(found) {
	case 0:
		return "", &bundle.Error{Message: fmt.Sprintf("the folder %s has no %s", folder, bundle.KustomizationNames[0])}
	case 1:
		return found[0], nil
	default:
		return "", &bundle.Error{File: found[1], Message: fmt.Sprintf("the folder also has %s: delete one of them", path.Base(found[0]))}
	}
}

// fileSystem returns the files in memory, below "/". It leaves out files whose names kustomize does not accept there.
func (t tree) fileSystem() filesys.FileSystem {
	system := filesys.MakeFsInMemory()
	for name, content := range t.files {
		_ = system.WriteFile("/"+name, content)
	}
	return system
}
