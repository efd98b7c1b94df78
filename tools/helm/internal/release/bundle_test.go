package release

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/chart"
)

const testObjects = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.invalid
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
data:
  text: '{{ .Values.a }}'
`

func parse(t *testing.T, file, content string) []bundle.Object {
	t.Helper()
	objects, err := bundle.Parse([]bundle.File{{Path: file, Content: []byte(content)}})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestRenderedBundle(t *testing.T) {
	objects := parse(t, "app/_a.yaml", testObjects)
	rendered, err := newRenderedBundle(objects, toolv1.CrdPolicy_CRD_POLICY_UNSPECIFIED)
	if err != nil {
		t.Fatal(err)
	}
	output, err := rendered.Run(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := output.String()
	for text, count := range map[string]int{
		"helm.sh/resource-policy: keep":  1,
		fileAnnotation + ": app/a.yaml":  2,
		"text: '{{ .Values.a }}'":        1,
		"kind: CustomResourceDefinition": 1,
		"---\n":                          2,
	} {
		if found := strings.Count(got, text); found != count {
			t.Errorf("%q is %d times in\n%s", text, found, got)
		}
	}
	if len(objects[0].GetAnnotations()) != 0 {
		t.Error("the objects of the bundle were changed")
	}
	skipped, err := newRenderedBundle(objects, toolv1.CrdPolicy_CRD_POLICY_SKIP)
	if err != nil || len(skipped.objects) != 1 || skipped.objects[0].IsCRD() {
		t.Fatalf("got %v, %v", skipped, err)
	}
}

// Helm must evaluate nothing, keep the names of files, remove our annotation, and store no files.
func TestHelmStoresRenderedObjectsOnly(t *testing.T) {
	rendered, err := newRenderedBundle(parse(t, "app/_a.yaml", testObjects), toolv1.CrdPolicy_CRD_POLICY_UNSPECIFIED)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName = "web"
	install.Namespace = "apps"
	install.PostRenderer = rendered
	metadata := &helmchart.Metadata{APIVersion: helmchart.APIVersionV2, Name: "manifests", Version: "0.0.0"}
	stored, err := install.Run(chart.Empty(metadata).Clone(), map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	release, ok := stored.(*rspb.Release)
	if !ok {
		t.Fatalf("got %T", stored)
	}
	for text, count := range map[string]int{
		"# Source: app/a.yaml":          2,
		"{{ .Values.a }}":               1,
		"helm.sh/resource-policy: keep": 1,
		fileAnnotation:                  0,
	} {
		if found := strings.Count(release.Manifest, text); found != count {
			t.Errorf("%q is %d times in\n%s", text, found, release.Manifest)
		}
	}
	if len(release.Chart.Templates)+len(release.Chart.Files)+len(release.Chart.Raw) != 0 {
		t.Error("the record contains files")
	}
}

func crd(scope string, stored []any, versions ...string) *unstructured.Unstructured {
	var list []any
	for _, version := range versions {
		list = append(list, map[string]any{"name": version})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "things.example.invalid"},
		"spec":     map[string]any{"scope": scope, "versions": list},
		"status":   map[string]any{"storedVersions": stored},
	}}
}

func TestCRDsThatWouldLoseObjectsAreRefused(t *testing.T) {
	live := crd("Namespaced", []any{"v1"}, "v1")
	for name, c := range map[string]struct {
		target *unstructured.Unstructured
		want   string
	}{
		"the same":          {crd("Namespaced", nil, "v1"), ""},
		"another version":   {crd("Namespaced", nil, "v1", "v2"), ""},
		"without a version": {crd("Namespaced", nil, "v2"), "version v1"},
		"another scope":     {crd("Cluster", nil, "v1"), "scope"},
	} {
		problems, _ := compareCRDs(live, c.target)
		if got := strings.Join(problems, "; "); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestOwnerOfCRD(t *testing.T) {
	release := &Release{name: "web", namespace: "apps"}
	plain := crd("Namespaced", nil, "v1")
	ours := release.owned(plain)
	if !hasSameOwner(ours, release.owned(plain)) {
		t.Error("a CRD of the release is refused")
	}
	other := &Release{name: "other", namespace: "apps"}
	if hasSameOwner(plain, ours) || hasSameOwner(other.owned(plain), ours) {
		t.Error("a CRD of another owner is accepted")
	}
	if len(plain.GetLabels()) != 0 {
		t.Error("the object was changed")
	}
}

func TestUnchangedCRDsAreNotAwaited(t *testing.T) {
	live := func(version, established string) *unstructured.Unstructured {
		object := crd("Namespaced", nil, "v1")
		object.SetResourceVersion(version)
		condition := map[string]any{"type": "Established", "status": established}
		object.Object["status"] = map[string]any{"conditions": []any{condition}}
		return object
	}
	for name, c := range map[string]struct {
		live *unstructured.Unstructured
		want bool
	}{
		"new":             {nil, false},
		"changed":         {live("1", "True"), false},
		"not established": {live("2", "False"), false},
		"unchanged":       {live("2", "True"), true},
	} {
		if got := (crdChange{live: c.live}).isServed(live("2", "True")); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestOnlyAnnotatedObjectsAreReplaced(t *testing.T) {
	for value, want := range map[string]bool{"": false, "Always": false, bundle.ReplaceWhenImmutable: true} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		setAnnotation(object, bundle.ReplaceAnnotation, value)
		if got := mayReplace(&resource.Info{Object: object}); got != want {
			t.Errorf("%q: got %v", value, got)
		}
	}
}
