package release

import (
	"errors"
	"testing"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Under rules, a package cannot say what another release of the namespace contains.
func TestRecordsOfReleasesAreNotAllowed(t *testing.T) {
	const why = "it is a record of a Helm release"
	cases := map[string]struct{ manifest, want string }{
		"by its name":     {"{apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v1.web2.v1}}", why},
		"by its prefix":   {"{apiVersion: v1, kind: Secret, metadata: {generateName: sh.helm.release.v1.web2.v}}", why},
		"by its label":    {"{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {owner: helm, name: web2, version: '1'}}}", why},
		"by its type":     {"{apiVersion: v1, kind: Secret, type: helm.sh/release.v1, metadata: {name: a}}", why},
		"ConfigMap":       {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {owner: helm}}}", why},
		"in a list":       {"{apiVersion: v1, kind: SecretList, items: [{metadata: {name: sh.helm.release.v1.web2.v1}}]}", why},
		"other Secret":    {"{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: a, labels: {owner: team}}}", ""},
		"similar name":    {"{apiVersion: v1, kind: Secret, metadata: {name: sh.helm.release.v10}}", ""},
		"of another kind": {"{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: {owner: helm}}}", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expectNotAllowed(t, checkedRelease(t, c.manifest), c.want) })
	}
	// Helm's client checks the same when it writes them.
	checked := &client{Client: &kube.Client{Namespace: "team"}, rules: objectRules{{Name: "AddonTenancy a", AnyNamespace: true}}}
	record := info("Secret", "a", "team", meta.RESTScopeNamespace, map[string]any{"labels": map[string]any{"owner": "helm"}})
	expectNotAllowed(t, checked.checkResources(kube.ResourceList{record}), why)
	checked.rules = nil
	expectNotAllowed(t, checked.checkResources(kube.ResourceList{record}), "")
}

// Another release may have added a kind after the APIs were cached.
func TestUnknownKindsAreLookedUpOnce(t *testing.T) {
	objects, err := decodeDocuments([]byte("{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}\n---\n" +
		"{apiVersion: example.com/v1, kind: Widget, metadata: {name: b}}"))
	if err != nil {
		t.Fatal(err)
	}
	rules := objectRules{{Name: "AddonTenancy a", Namespaces: []string{"team"}}}
	unavailable := errors.New("unavailable")
	cases := map[string]struct {
		knownAfter int
		refreshErr error
		refreshes  int
		want       string
	}{
		"known":             {knownAfter: 0, refreshes: 0},
		"added since":       {knownAfter: 1, refreshes: 1},
		"does not exist":    {knownAfter: 2, refreshes: 1, want: "Widget a: its spec.kinds.clusterScoped"},
		"cannot be fetched": {knownAfter: 2, refreshErr: unavailable, refreshes: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			refreshes := 0
			served := func(schema.GroupVersionKind) (bool, bool) {
				return refreshes >= c.knownAfter, refreshes >= c.knownAfter
			}
			err := rules.checkAll(objects, newScopes(served, []*unstructured.Unstructured{}), "team", func() error {
				refreshes++
				return c.refreshErr
			})
			if refreshes != c.refreshes {
				t.Errorf("got %d refreshes", refreshes)
			}
			if c.refreshErr != nil {
				if !errors.Is(err, c.refreshErr) {
					t.Errorf("got %v", err)
				}
				return
			}
			expectNotAllowed(t, err, c.want)
		})
	}
}
