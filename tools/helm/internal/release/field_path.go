package release

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// findPath reads the path of a field of an object as the API server writes it, for example
// .spec.template.spec.containers[name="app"].image. It needs the object, because field names may contain dots. It returns
// false if the object does not have the field.
func findPath(object any, text string) (fieldpath.Path, bool) {
	if text == "" {
		return nil, true
	}
	switch object := object.(type) {
	case map[string]any:
		return findInMap(object, text)
	case []any:
		element, rest, ok := readListElement(text)
		if !ok {
			return nil, false
		}
		at := findItem(object, element)
		if at < 0 {
			return nil, false
		}
		return findRest(object[at], element, rest)
	}
	return nil, false
}

func findInMap(object map[string]any, text string) (fieldpath.Path, bool) {
	// The longest name first: .data.a.b is the key a.b rather than the field b of the key a.
	names := slices.SortedFunc(maps.Keys(object), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, name := range names {
		rest, ok := strings.CutPrefix(text, "."+name)
		if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		if path, ok := findRest(object[name], fieldpath.FieldNameElement(name), rest); ok {
			return path, true
		}
	}
	return nil, false
}

func findRest(object any, first fieldpath.PathElement, rest string) (fieldpath.Path, bool) {
	path, ok := findPath(object, rest)
	if !ok {
		return nil, false
	}
	return append(fieldpath.Path{first}, path...), true
}

// readListElement reads the element of a path that selects a list item: [name="app"], [="value"] or [3].
func readListElement(text string) (element fieldpath.PathElement, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, "[")
	if !ok {
		return element, "", false
	}
	if inner, isValue := strings.CutPrefix(text, "="); isValue {
		item, rest, ok := readScalar(inner)
		if !ok || !strings.HasPrefix(rest, "]") {
			return element, "", false
		}
		return fieldpath.ValueElement(item), rest[1:], true
	}
	if number, rest, found := strings.Cut(text, "]"); found {
		if index, err := strconv.Atoi(number); err == nil {
			return fieldpath.IndexElement(index), rest, true
		}
	}
	return readKeys(text)
}

// readKeys reads name="app",port=80] after the opening bracket.
func readKeys(text string) (element fieldpath.PathElement, rest string, ok bool) {
	var keys []value.Field
	for {
		name, inner, found := strings.Cut(text, "=")
		if !found {
			return element, "", false
		}
		item, after, ok := readScalar(inner)
		if !ok || after == "" {
			return element, "", false
		}
		keys = append(keys, value.Field{Name: name, Value: item})
		switch after[0] {
		case ']':
			return fieldpath.KeyElement(keys...), after[1:], true
		case ',':
			text = after[1:]
		default:
			return element, "", false
		}
	}
}

// readScalar reads a text, a number, a boolean or null (ToString in structured-merge-diff's package value).
func readScalar(text string) (item value.Value, rest string, ok bool) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		plain, err := strconv.Unquote(quoted)
		return value.NewValueInterface(plain), text[len(quoted):], err == nil
	}
	end := strings.IndexAny(text, ",]")
	if end < 0 {
		return nil, "", false
	}
	word, rest := text[:end], text[end:]
	if word == "null" {
		return value.NewValueInterface(nil), rest, true
	}
	if flag, err := strconv.ParseBool(word); err == nil && (word == "true" || word == "false") {
		return value.NewValueInterface(flag), rest, true
	}
	if number, err := strconv.ParseInt(word, 10, 64); err == nil {
		return value.NewValueInterface(number), rest, true
	}
	if number, err := strconv.ParseFloat(word, 64); err == nil {
		return value.NewValueInterface(number), rest, true
	}
	return nil, "", false
}

// findItem returns the index of the list item that a path selects, or -1.
func findItem(list []any, element fieldpath.PathElement) int {
	switch {
	case element.Index != nil:
		if *element.Index >= 0 && *element.Index < len(list) {
			return *element.Index
		}
		return -1
	case element.Value != nil:
		return slices.IndexFunc(list, func(item any) bool { return value.Equals(value.NewValueInterface(item), *element.Value) })
	case element.Key != nil:
		exact := slices.IndexFunc(list, func(item any) bool { return hasKeys(item, *element.Key, false) })
		if exact >= 0 {
			return exact
		}
		return slices.IndexFunc(list, func(item any) bool { return hasKeys(item, *element.Key, true) })
	}
	return -1
}

// hasKeys reports whether a list item has these keys. A key may be missing if the API server adds its default, such as the
// protocol of a port.
func hasKeys(item any, keys value.FieldList, mayMiss bool) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	found := 0
	for _, key := range keys {
		switch got, exists := fields[key.Name]; {
		case !exists && mayMiss:
		case !exists || !value.Equals(value.NewValueInterface(got), key.Value):
			return false
		default:
			found++
		}
	}
	return found > 0
}

// removeField returns the object without a field, and without what is empty then. It returns nil if nothing is left.
func removeField(object any, path fieldpath.Path) any {
	if len(path) == 0 {
		return nil
	}
	switch object := object.(type) {
	case map[string]any:
		name := path[0].FieldName
		if name == nil {
			return object
		}
		if left := removeField(object[*name], path[1:]); left != nil {
			object[*name] = left
		} else {
			delete(object, *name)
		}
		if len(object) == 0 {
			return nil
		}
		return object
	case []any:
		at := findItem(object, path[0])
		if at < 0 {
			return object
		}
		if left := removeField(object[at], path[1:]); left != nil {
			object[at] = left
			return object
		}
		if len(object) == 1 {
			return nil
		}
		return slices.Delete(object, at, at+1)
	}
	return object
}
