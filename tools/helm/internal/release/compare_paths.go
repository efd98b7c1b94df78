package release

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// exemptSubresources are the subresources whose fields are not compared: controllers and autoscalers write through them.
var exemptSubresources = []string{"scale", "status"}

// checkPointers checks the paths of rules.
func checkPointers(rules []*toolv1.IgnoreRule) error {
	for _, rule := range rules {
		for _, pointer := range rule.GetPaths() {
			if !strings.HasPrefix(pointer, "/") || pointer == "/" {
				return failure.New(failure.InvalidValues, "%q is not a JSON pointer to a field, such as /spec/replicas", pointer)
			}
		}
	}
	return nil
}

// exemptPaths returns the fields of an object that are not compared.
func exemptPaths(live, body *unstructured.Unstructured, pointers []string) ([]fieldpath.Path, error) {
	var paths []fieldpath.Path
	for _, entry := range live.GetManagedFields() {
		if !slices.Contains(exemptSubresources, entry.Subresource) {
			continue
		}
		fields, err := fieldSet(entry)
		if err != nil {
			return nil, err
		}
		fields.Leaves().Iterate(func(path fieldpath.Path) { paths = append(paths, path.Copy()) })
	}
	for _, pointer := range pointers {
		path, found := findPointer(live.Object, pointer)
		if !found {
			path, found = findPointer(body.Object, pointer)
		}
		if found {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// findPointer returns the path of the field that a JSON pointer selects. It returns false if the object does not have the field.
func findPointer(object any, pointer string) (fieldpath.Path, bool) {
	var path fieldpath.Path
	for _, token := range strings.Split(pointer, "/")[1:] {
		switch value := object.(type) {
		case map[string]any:
			name := unescape(token)
			inner, found := value[name]
			if !found {
				return nil, false
			}
			path, object = append(path, fieldpath.FieldNameElement(name)), inner
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(value) {
				return nil, false
			}
			path, object = append(path, itemElement(value, index)), value[index]
		default:
			return nil, false
		}
	}
	return path, true
}

// itemElement selects a list item by its name if all items have one, because the same item may have another index in another
// version of the list.
func itemElement(list []any, index int) fieldpath.PathElement {
	if names := itemNames(list); names != nil {
		return fieldpath.KeyElementByFields("name", names[index])
	}
	return fieldpath.IndexElement(index)
}

// itemNames returns the names of list items, or nil unless each has its own.
func itemNames(list []any) []string {
	names := make([]string, 0, len(list))
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, ok := fields["name"].(string)
		if !ok || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

var escaper, unescaper = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")

// escape returns a field name as part of a JSON pointer.
func escape(name string) string { return escaper.Replace(name) }

func unescape(token string) string { return unescaper.Replace(token) }

// keepLive gives fields that are to be applied the values that they have on the cluster. Fields that are not there are not
// applied.
func keepLive(body, live map[string]any, exempt []fieldpath.Path) {
	for _, path := range exempt {
		if _, applied := valueAt(body, path); !applied {
			continue
		}
		if value, found := valueAt(live, path); found {
			setValue(body, path, value)
		} else {
			removeField(body, path)
		}
	}
}

// pinLive adds those exempt fields to an object that applying it would change nevertheless: fields that it does not have, in a
// map or list that is applied as a whole. It reports whether there are any.
func pinLive(body, wanted, live map[string]any, exempt []fieldpath.Path) bool {
	pinned := false
	for _, path := range exempt {
		value, found := valueAt(live, path)
		if applied, kept := valueAt(wanted, path); !found || kept && isEqual(applied, value) {
			continue
		}
		pinned = setValue(body, path, value) || pinned
	}
	return pinned
}

// valueAt returns the value of a field, and false if the object does not have the field.
func valueAt(object any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		switch value := object.(type) {
		case map[string]any:
			if element.FieldName == nil {
				return nil, false
			}
			inner, found := value[*element.FieldName]
			if !found {
				return nil, false
			}
			object = inner
		case []any:
			at := findItem(value, element)
			if at < 0 {
				return nil, false
			}
			object = value[at]
		default:
			return nil, false
		}
	}
	return object, true
}

// setValue sets a field to a copy of a value, and creates the maps that contain it. It returns false if the object has no place
// for the field.
func setValue(object map[string]any, path fieldpath.Path, value any) bool {
	var current any = object
	for at, element := range path {
		isLast := at == len(path)-1
		switch container := current.(type) {
		case map[string]any:
			if element.FieldName == nil {
				return false
			}
			if isLast {
				container[*element.FieldName] = runtime.DeepCopyJSONValue(value)
				return true
			}
			if _, found := container[*element.FieldName]; !found {
				if path[at+1].FieldName == nil {
					return false
				}
				container[*element.FieldName] = map[string]any{}
			}
			current = container[*element.FieldName]
		case []any:
			item := findItem(container, element)
			if item < 0 {
				return false
			}
			if isLast {
				container[item] = runtime.DeepCopyJSONValue(value)
				return true
			}
			current = container[item]
		default:
			return false
		}
	}
	return false
}
