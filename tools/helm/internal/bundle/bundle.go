// Package bundle reads bundles: YAML and JSON files with Kubernetes objects.
package bundle

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// File is a file of a bundle.
type File struct {
	// Path is relative to the root of the bundle, with slashes.
	Path    string
	Content []byte
}

// Object is an object of a bundle.
type Object struct {
	*unstructured.Unstructured
	// File is the file that the object comes from.
	File string
	// Line is the line of the file on which the object starts, starting at 1. 0 means unknown.
	Line int
}

// YAML returns the object as a YAML document with sorted keys.
func (o Object) YAML() ([]byte, error) { return yaml.Marshal(o.Object) }

// IsCRD reports whether the object is a CustomResourceDefinition.
func (o Object) IsCRD() bool { return o.GroupVersionKind().GroupKind() == crdKind }

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// place returns where the object comes from, for messages.
func (o Object) place() string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s, line %d", o.File, o.Line)
}

// Error is a problem in a file.
type Error struct {
	// File is empty if the problem is not in one file.
	File string
	// Line starts at 1. 0 means unknown.
	Line    int
	Message string
}

func (e *Error) Error() string {
	switch {
	case e.File == "":
		return e.Message
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	default:
		return fmt.Sprintf("%s, line %d: %s", e.File, e.Line, e.Message)
	}
}

// IsManifest reports whether a file contains manifests, by its name. Files and folders that start with a dot are configuration
// of other programs.
func IsManifest(name string) bool {
	hidden := slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, ".") })
	return !hidden && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// maxObjects limits the number of objects of a bundle.
const maxObjects = 10_000

// Parse returns the objects of all files, in the order of the files. It fails if there are none, or if one exists twice.
func Parse(files []File) ([]Object, error) {
	var objects []Object
	for _, file := range files {
		found, err := parseFile(file)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
		if len(objects) > maxObjects {
			return nil, &Error{File: file.Path, Message: fmt.Sprintf("there are more than %d objects", maxObjects)}
		}
	}
	return objects, Check(objects)
}

// Check returns an error if there are no objects, or if an object exists twice.
func Check(objects []Object) error {
	if len(objects) == 0 {
		return &Error{Message: "there are no objects"}
	}
	type identity struct {
		kind            schema.GroupKind
		namespace, name string
	}
	known := map[identity]Object{}
	for _, object := range objects {
		id := identity{object.GroupVersionKind().GroupKind(), object.GetNamespace(), object.GetName()}
		if first, exists := known[id]; exists {
			return &Error{File: object.File, Line: object.Line, Message: fmt.Sprintf(
				"%s %s is already defined in %s", object.GetKind(), object.GetName(), first.place())}
		}
		known[id] = object
	}
	return nil
}
