package release

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"chandler.dev/tools/helm/internal/bundle"
)

func TestContentWriters(t *testing.T) {
	applied := entry("helm", apply, "", `{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}},"f:replicas":{}}}`)
	created := `{"f:spec":{"f:containers":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{},"f:policy":{}}},"f:paused":{},"f:replicas":{}}}`
	other := entry("manager", update, "", created)
	other.APIVersion = "v2"
	cases := map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"the client that created the object": {entry("manager", update, "", created), true},
		"an autoscaler":                      {entry("autoscaler", update, "", `{"f:spec":{"f:replicas":{}}}`), false},
		"another version":                    {other, false},
		"a status":                           {entry("manager", update, "status", created), false},
		"server-side":                        {entry("argo", apply, "", created), false},
		"no fields":                          {metav1.ManagedFieldsEntry{Manager: "x", Operation: update, APIVersion: "v1"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			writers, err := contentWriters([]metav1.ManagedFieldsEntry{c.entry}, applied)
			if err != nil {
				t.Fatal(err)
			}
			if got := writers.Has(c.entry.Manager); got != c.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestContentWritersOfAnObjectWithoutFields(t *testing.T) {
	empty := entry("helm", apply, "", `{}`)
	writers, err := contentWriters([]metav1.ManagedFieldsEntry{entry("manager", update, "", withoutReleaseName)}, empty)
	if err != nil || writers.Len() != 0 {
		t.Fatalf("got %v, %v", writers, err)
	}
}

func TestTakeOverManagedFields(t *testing.T) {
	applied := entry("helm", apply, "", `{"f:data":{"f:one":{}}}`)
	kept := entry("kubectl-edit", update, "", `{"f:data":{"f:two":{}}}`)
	before := []metav1.ManagedFieldsEntry{entry("manager", update, "", `{"f:data":{".":{},"f:one":{}}}`), kept}
	after, changes, err := takeOverManagedFields(before, applied)
	if err != nil || !changes {
		t.Fatalf("got %v, %v", changes, err)
	}
	if len(after) != 2 || after[0].Manager != kept.Manager || !isHelmApply(after[1]) {
		t.Fatalf("got %v", after)
	}
	if _, again, err := takeOverManagedFields(after, applied); again || err != nil {
		t.Errorf("the second time: %v, %v", again, err)
	}
}

func TestTakeOverManifestOmitsTheAnnotationOfCRDs(t *testing.T) {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "a"},
	}}
	rendered, err := newRenderedBundle([]bundle.Object{{Unstructured: crd, File: "a.yaml"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := takeOverManifest(rendered.objects)
	if err != nil {
		t.Fatal(err)
	}
	want := "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a\n"
	if string(manifest) != want {
		t.Fatalf("got %s", manifest)
	}
	if rendered.objects[0].GetAnnotations() == nil {
		t.Error("the object of the bundle was changed")
	}
}
