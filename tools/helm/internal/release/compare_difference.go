package release

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// maxPaths is the number of paths that are reported for an object.
const maxPaths = 20

// serverFields are the metadata that the API server sets.
var serverFields = []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}

// differences returns JSON pointers to the fields of an object that applying the recorded object would change, without exempt
// ones.
func differences(live, wanted *unstructured.Unstructured, exempt []fieldpath.Path, ignored []string) []string {
	before, after := withoutServerFields(live), withoutServerFields(wanted)
	for _, path := range exempt {
		if value, found := valueAt(before, path); found {
			setValue(after, path, value)
		} else {
			removeField(after, path)
		}
	}
	found := difference{}
	found.compare("", before, after)
	paths := slices.DeleteFunc(found.pointers, func(pointer string) bool {
		return slices.ContainsFunc(ignored, func(covering string) bool { return covers(covering, pointer) })
	})
	return paths[:min(len(paths), maxPaths)]
}

// covers reports whether a JSON pointer selects another one or a field that contains it.
func covers(covering, pointer string) bool {
	rest, found := strings.CutPrefix(pointer, strings.TrimSuffix(covering, "/"))
	return found && (rest == "" || rest[0] == '/')
}

func withoutServerFields(object *unstructured.Unstructured) map[string]any {
	content := object.DeepCopy().Object
	delete(content, "status")
	for _, field := range serverFields {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	return content
}

// difference collects the fields that differ.
type difference struct{ pointers []string }

func (d *difference) add(pointer string) { d.pointers = append(d.pointers, pointer) }

// compare compares the value of a field on the cluster with that which is wanted.
func (d *difference) compare(pointer string, live, wanted any) {
	switch live := live.(type) {
	case map[string]any:
		if wanted, ok := wanted.(map[string]any); ok {
			d.compareMaps(pointer, live, wanted)
			return
		}
	case []any:
		if wanted, ok := wanted.([]any); ok {
			d.compareLists(pointer, live, wanted)
			return
		}
	}
	if !isEqual(live, wanted) {
		d.add(pointer)
	}
}

func (d *difference) compareMaps(pointer string, live, wanted map[string]any) {
	names := slices.Collect(maps.Keys(live))
	for name := range wanted {
		if _, found := live[name]; !found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		inner := pointer + "/" + escape(name)
		before, isLive := live[name]
		after, isWanted := wanted[name]
		if isLive != isWanted {
			d.add(inner)
			continue
		}
		d.compare(inner, before, after)
	}
}

func (d *difference) compareLists(pointer string, live, wanted []any) {
	before, after := itemNames(live), itemNames(wanted)
	switch {
	case len(live) > 0 && len(wanted) > 0 && before != nil && after != nil:
		d.compareNamed(pointer, live, wanted, before, after)
	case len(live) != len(wanted):
		d.add(pointer)
	default:
		for i := range live {
			d.compare(pointer+"/"+strconv.Itoa(i), live[i], wanted[i])
		}
	}
}

// compareNamed compares lists whose items have names. Items that exist on the cluster are reported with their index there.
func (d *difference) compareNamed(pointer string, live, wanted []any, before, after []string) {
	known := len(d.pointers)
	for i, name := range before {
		inner := pointer + "/" + strconv.Itoa(i)
		if at := slices.Index(after, name); at >= 0 {
			d.compare(inner, live[i], wanted[at])
		} else {
			d.add(inner)
		}
	}
	for i, name := range after {
		if !slices.Contains(before, name) {
			d.add(pointer + "/" + strconv.Itoa(i))
		}
	}
	if known == len(d.pointers) && !slices.Equal(before, after) {
		d.add(pointer)
	}
}

func isEqual(a, b any) bool {
	return value.Equals(value.NewValueInterface(a), value.NewValueInterface(b))
}
