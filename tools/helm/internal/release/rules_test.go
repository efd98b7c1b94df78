package release

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/kube"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func kinds(patterns ...string) []*toolv1.KindPattern {
	var all []*toolv1.KindPattern
	for _, pattern := range patterns {
		kind, group, _ := strings.Cut(pattern, ".")
		all = append(all, &toolv1.KindPattern{Group: group, Kind: kind})
	}
	return all
}

func TestRules(t *testing.T) {
	named := checkedObject{kind: schema.GroupKind{Kind: "ConfigMap"}, name: "a", namespace: "team", namespaced: true}
	in := func(namespace string) checkedObject {
		object := named
		object.namespace = namespace
		return object
	}
	clusterScoped := func(group, kind, name string) checkedObject {
		return checkedObject{kind: schema.GroupKind{Group: group, Kind: kind}, name: name}
	}
	const rbac = "rbac.authorization.k8s.io"
	strict := &toolv1.ObjectRule{Name: "AddonTenancy a", Namespaces: []string{"team", "team-*"}}
	wide := &toolv1.ObjectRule{
		Name: "AddonTenancy b", AnyNamespace: true,
		ClusterScopedKinds: kinds("ClusterRole."+rbac, "Namespace", "*.example.com"), DeniedKinds: kinds("Secret", "Node.*"),
	}
	cases := map[string]struct {
		rules  objectRules
		object checkedObject
		want   string
	}{
		"no rules":                  {nil, clusterScoped(rbac, "ClusterRole", "a"), ""},
		"listed namespace":          {objectRules{strict}, named, ""},
		"namespace with the prefix": {objectRules{strict}, in("team-staging"), ""},
		"other namespace": {
			objectRules{strict}, in("kube-system"),
			"AddonTenancy a does not allow ConfigMap kube-system/a: its spec.targetNamespaces does not list kube-system",
		},
		"prefix without separator": {objectRules{strict}, in("teams"), "spec.targetNamespaces"},
		"cluster-scoped": {
			objectRules{strict}, clusterScoped(rbac, "ClusterRoleBinding", "evil"),
			"AddonTenancy a does not allow ClusterRoleBinding evil: its spec.kinds.clusterScoped does not list ClusterRoleBinding." + rbac,
		},
		"listed kind":             {objectRules{wide}, clusterScoped(rbac, "ClusterRole", "a"), ""},
		"same kind, other group":  {objectRules{wide}, clusterScoped("other.example", "ClusterRole", "a"), "spec.kinds.clusterScoped"},
		"listed group":            {objectRules{wide}, clusterScoped("example.com", "Widget", "a"), ""},
		"denied kind":             {objectRules{wide}, checkedObject{kind: schema.GroupKind{Kind: "Secret"}, namespaced: true}, "spec.kinds.denied lists Secret"},
		"denied in every group":   {objectRules{wide}, clusterScoped("example.com", "Node", "a"), "spec.kinds.denied"},
		"all rules must allow":    {objectRules{wide, strict}, clusterScoped(rbac, "ClusterRole", "a"), "AddonTenancy a"},
		"namespace, any":          {objectRules{wide}, clusterScoped("", "Namespace", "kube-system"), ""},
		"namespace of other name": {objectRules{{Name: "x", Namespaces: []string{"team"}, ClusterScopedKinds: kinds("*.*")}}, clusterScoped("", "Namespace", "kube-system"), "spec.targetNamespaces"},
		"nothing is listed":       {objectRules{{Name: "x"}}, named, "spec.targetNamespaces"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expectNotAllowed(t, c.rules.check(c.object), c.want) })
	}
	expectNotAllowed(t, objectRules{strict}.checkNamespace("team"), "")
	expectNotAllowed(t, objectRules{strict}.checkNamespace("default"), "does not allow releases in namespace default")
}

func expectNotAllowed(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("got %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) || failure.Classify(err).Category != failure.NotAllowed {
		t.Errorf("got %v, want %q", err, want)
	}
}

// checkedRelease is a release under a rule that allows no cluster-scoped objects, on a cluster that serves a few kinds.
func checkedRelease(t *testing.T, manifest string) error {
	t.Helper()
	objects, err := decodeDocuments([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	served := func(gvk schema.GroupVersionKind) (bool, bool) {
		switch gvk.Kind {
		case "ConfigMap", "Job", "Secret":
			return true, true
		case "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition":
			return false, true
		}
		return false, false
	}
	rules := objectRules{{Name: "AddonTenancy a", Namespaces: []string{"team"}, ClusterScopedKinds: kinds("CustomResourceDefinition.*")}}
	all := expandAll(objects)
	return rules.checkAll(all, newScopes(served, all), "team", func() error { return nil })
}

func TestDocumentsAreExpanded(t *testing.T) {
	const binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: evil}}"
	crd := func(scope string) string {
		return "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: w}, " +
			"spec: {group: example.com, scope: " + scope + ", names: {kind: Widget}}}\n---\n"
	}
	const widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}"
	cases := map[string]struct{ manifest, want string }{
		"namespace of the release": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", ""},
		"second document":          {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" + binding, "ClusterRoleBinding evil"},
		"list":                     {"{apiVersion: v1, kind: List, items: [" + binding + "]}", "ClusterRoleBinding evil"},
		"nested list":              {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [" + binding + "]}]}", "evil"},
		"items of another kind":    {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, items: [" + binding + "]}", "evil"},
		"typed list":               {"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleList, items: [{metadata: {name: evil}}]}", "ClusterRole evil"},
		"hook":                     {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: kube-system\n  annotations: {helm.sh/hook: pre-install}", "kube-system"},
		"unknown kind":             {widget, "Widget a: its spec.kinds.clusterScoped"},
		"kind of a CRD":            {crd("Namespaced") + widget, ""},
		"cluster-scoped CRD":       {crd("Cluster") + widget, "Widget a"},
		"two definitions":          {crd("Namespaced") + crd("Cluster") + widget, "Widget a"},
		"namespace in other scope": {"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: b, namespace: team}}", "ClusterRole b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expectNotAllowed(t, checkedRelease(t, c.manifest), c.want) })
	}
}

func TestCheckingRendererReturnsWhatItGets(t *testing.T) {
	checked := ""
	renderer := &checkingRenderer{check: func(rendered []byte) error {
		checked = string(rendered)
		return nil
	}}
	got, err := renderer.Run(bytes.NewBufferString("a: 1\n"))
	if err != nil || got.String() != "a: 1\n" || checked != "a: 1\n" {
		t.Errorf("got %q, checked %q, %v", got, checked, err)
	}
	renderer.check = func([]byte) error { return failure.New(failure.NotAllowed, "no") }
	if got, err := renderer.Run(bytes.NewBufferString("a: 1\n")); got != nil || failure.Classify(err).Category != failure.NotAllowed {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDefinedAPIs(t *testing.T) {
	objects, err := decodeDocuments([]byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: w},
  spec: {group: example.com, names: {kind: Widget}, versions: [{name: v1, served: true}, {name: v2, served: false}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(definedAPIs(objects), " "); got != "example.com/v1 example.com/v1/Widget" {
		t.Errorf("got %s", got)
	}
}

func info(kind, name, namespace string, scope meta.RESTScope, metadata map[string]any) *resource.Info {
	metadata["name"] = name
	return &resource.Info{
		Name: name, Namespace: namespace,
		Object:  &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}},
		Mapping: &meta.RESTMapping{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: kind}, Scope: scope},
	}
}

func TestEveryWriteIsChecked(t *testing.T) {
	checked := &client{
		Client: &kube.Client{Namespace: "team"}, verb: verbInstall,
		rules: objectRules{{Name: "AddonTenancy a", Namespaces: []string{"team"}}},
	}
	hook := map[string]any{"annotations": map[string]any{rspb.HookAnnotation: "pre-install"}}
	node := kube.ResourceList{info("Node", "a", "", meta.RESTScopeRoot, hook)}
	_, err := checked.Create(node)
	expectNotAllowed(t, err, "Node a")
	_, err = checked.Update(nil, node)
	expectNotAllowed(t, err, "Node a")
	// Helm deletes what has the name of a hook. The items of a list do not have the annotation.
	item := kube.ResourceList{info("Node", "a", "", meta.RESTScopeRoot, map[string]any{})}
	for _, objects := range []kube.ResourceList{node, item} {
		if _, failures := checked.Delete(objects, ""); len(failures) != 1 {
			t.Errorf("an object with the name of a hook is deleted: %v", failures)
		}
	}
	checked.rendered = true
	expectNotAllowed(t, checked.wrapError(errors.New("failed to delete release: web")), "Node a")
	checked.removed = kube.ResourceList{info("Node", "a", "", meta.RESTScopeRoot, map[string]any{})}
	expectNotAllowed(t, checked.checkDeleted(item), "")
	expectNotAllowed(t, checked.checkDeleted(kube.ResourceList{info("Node", "b", "", meta.RESTScopeRoot, map[string]any{})}), "Node b")
	checked.startAction(verbInstall)
	expectNotAllowed(t, checked.checkDeleted(item), "Node a")
	own := map[string]any{"labels": map[string]any{"name": "team"}}
	ownNamespace := kube.ResourceList{info("Namespace", "team", "", meta.RESTScopeRoot, own)}
	expectNotAllowed(t, checked.checkResources(ownNamespace), "")
	expectNotAllowed(t, checked.checkDeleted(ownNamespace), "Namespace team")
	privileged := map[string]any{"labels": map[string]any{"name": "team", "pod-security.kubernetes.io/enforce": "privileged"}}
	expectNotAllowed(t, checked.checkResources(kube.ResourceList{info("Namespace", "team", "", meta.RESTScopeRoot, privileged)}), "Namespace team")
	expectNotAllowed(t, checked.checkResources(kube.ResourceList{info("Pod", "a", "default", meta.RESTScopeNamespace, map[string]any{})}), "default")
	checked.rules = nil
	expectNotAllowed(t, checked.checkResources(node), "")
}

func TestHooksOfRemovals(t *testing.T) {
	for event, want := range map[rspb.HookEvent]bool{rspb.HookPreDelete: true, rspb.HookPostDelete: true, rspb.HookPreInstall: false} {
		if got := runsOnRemoval(&rspb.Hook{Events: []rspb.HookEvent{event}}); got != want {
			t.Errorf("%s: got %v", event, got)
		}
	}
}
