package release

import (
	"bytes"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/postrenderer"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/values"
)

// Objects are checked twice, and both times it is what Helm applies. First all of them, before the first write: a post-renderer
// gets the rendered objects and those of hooks from Helm, and returns them as they are. Then each object when Helm's client gets
// it, because it may read a document in another way than the first check.

// checkingRenderer is a post-renderer that changes nothing. It fails if an object is not allowed.
type checkingRenderer struct {
	check func(rendered []byte) error
}

var _ postrenderer.PostRenderer = (*checkingRenderer)(nil)

// Run implements postrenderer.PostRenderer.
func (c *checkingRenderer) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	if err := c.check(rendered.Bytes()); err != nil {
		return nil, err
	}
	return rendered, nil
}

// checkFirst prepares the check of a chart. The objects in crds/ are created after it, when Helm builds the rendered objects: it
// renders as if they were there.
func (r *Release) checkFirst(spec *ApplySpec) error {
	var crds []*unstructured.Unstructured
	if spec.Options.GetCrds() != toolv1.CrdPolicy_CRD_POLICY_SKIP && spec.Chart.HasCRDs() {
		var err error
		if crds, err = crdObjects(*spec); err != nil {
			return err
		}
		if err := r.checkObjects(crds, crds); err != nil {
			return err
		}
	}
	r.definedAPIs = definedAPIs(crds)
	spec.checking = &checkingRenderer{check: func(rendered []byte) error {
		objects, err := decodeDocuments(rendered)
		if err != nil {
			return failure.Wrap(failure.InvalidPackage, err, "the rendered objects are not valid YAML: %v", values.WithoutQuotedInput(err))
		}
		return r.checkObjects(objects, slices.Concat(objects, crds))
	}}
	applied := *spec
	// Helm's client has checked the size of the record before.
	r.client.beforeFirstBuild = func() error { return r.applyCRDs(applied, func() error { return nil }) }
	return nil
}

// definedAPIs returns the API versions that CRDs add to those of the cluster, as templates read them.
func definedAPIs(crds []*unstructured.Unstructured) common.VersionSet {
	var versions common.VersionSet
	for _, crd := range crds {
		if crd.GroupVersionKind().GroupKind() != crdKind {
			continue
		}
		for _, kind := range servedKinds(crd) {
			groupVersion := kind.GroupVersion().String()
			versions = append(versions, groupVersion, groupVersion+"/"+kind.Kind)
		}
	}
	return versions
}

// checkObjects checks documents. CRDs among the objects in defining determine the scope of kinds that are not served yet.
func (r *Release) checkObjects(documents, defining []*unstructured.Unstructured) error {
	if len(r.client.rules) == 0 {
		return nil
	}
	scopes := newScopes(r.session.Namespaced, expandAll(defining))
	return r.client.rules.checkAll(expandAll(documents), scopes, r.namespace, r.session.RefreshMissing)
}

// checkAll checks objects. If a kind is unknown, refresh fetches the APIs of the cluster first: another release may have added it.
func (rules objectRules) checkAll(
	objects []*unstructured.Unstructured, scopes scopes, releaseNamespace string, refresh func() error,
) error {
	if slices.ContainsFunc(objects, scopes.isUnknown) {
		if err := refresh(); err != nil {
			return err
		}
	}
	for _, object := range objects {
		if err := rules.check(scopes.object(object, releaseNamespace)); err != nil {
			return err
		}
	}
	return nil
}

func expandAll(documents []*unstructured.Unstructured) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, document := range documents {
		all = append(all, expand(document)...)
	}
	return all
}

// checkBundle checks the objects of a bundle.
func (r *Release) checkBundle(rendered *renderedBundle) error {
	objects := make([]*unstructured.Unstructured, 0, len(rendered.objects))
	for _, object := range rendered.objects {
		objects = append(objects, object.Unstructured)
	}
	return r.checkObjects(objects, objects)
}

// checkRevision checks the objects of a stored revision and of its hooks.
func (r *Release) checkRevision(revision *rspb.Release) error {
	if len(r.client.rules) == 0 {
		return nil
	}
	objects, err := decodeDocuments([]byte(revision.Manifest))
	if err != nil {
		return unreadable(revision, err)
	}
	if err := r.checkObjects(objects, objects); err != nil {
		return err
	}
	return r.checkHooks(revision, func(*rspb.Hook) bool { return true })
}

// checkHooks checks the objects of those hooks of a stored revision that are chosen.
func (r *Release) checkHooks(revision *rspb.Release, isChosen func(*rspb.Hook) bool) error {
	if len(r.client.rules) == 0 {
		return nil
	}
	for _, hook := range revision.Hooks {
		if !isChosen(hook) {
			continue
		}
		objects, err := decodeDocuments([]byte(hook.Manifest))
		if err != nil {
			return unreadable(revision, err)
		}
		if err := r.checkObjects(objects, objects); err != nil {
			return err
		}
	}
	return nil
}

// runsOnRemoval reports whether a hook runs when the release is uninstalled.
func runsOnRemoval(hook *rspb.Hook) bool {
	return slices.Contains(hook.Events, rspb.HookPreDelete) || slices.Contains(hook.Events, rspb.HookPostDelete)
}

// setRemoved records the objects of a revision that is uninstalled, which may be deleted whatever the rules are.
func (r *Release) setRemoved(revision *rspb.Release) {
	if len(r.client.rules) == 0 {
		return
	}
	// Helm fails for the same reason, unless it keeps the object that cannot be built. The others may be deleted.
	resources, _ := r.client.Client.Build(strings.NewReader(revision.Manifest), false)
	r.client.removed = resources
}

// checkDeleted checks objects that Helm is about to delete. Before it creates a hook, it deletes what has the name of the hook. A
// hook can be a list, whose items do not have the annotation of hooks. Helm does not delete the namespace of the release.
func (c *client) checkDeleted(resources kube.ResourceList) error {
	return c.checkEach(resources.Difference(c.removed))
}

// checkResources checks objects that Helm is about to write.
func (c *client) checkResources(resources kube.ResourceList) error {
	if c.isOwnNamespace(resources) {
		return nil
	}
	return c.checkEach(resources)
}

func (c *client) checkEach(resources kube.ResourceList) error {
	if len(c.rules) == 0 {
		return nil
	}
	for _, info := range resources {
		if err := c.checkResource(info); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) checkResource(info *resource.Info) error {
	checked := checkedObject{
		kind:       info.Mapping.GroupVersionKind.GroupKind(),
		name:       info.Name,
		namespaced: info.Mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		record:     isRecord(info.Mapping.GroupVersionKind.GroupKind(), info.Object),
	}
	if checked.namespaced {
		checked.namespace = info.Namespace
	}
	return c.rules.check(checked)
}

// isOwnNamespace reports whether the only object is the namespace of the release as Helm creates it. Namespaces of packages have
// more metadata.
func (c *client) isOwnNamespace(resources kube.ResourceList) bool {
	if !isNamespace(resources) || resources[0].Name != c.Namespace {
		return false
	}
	object, err := meta.Accessor(resources[0].Object)
	return err == nil && len(object.GetAnnotations()) == 0 && len(object.GetLabels()) == 1 &&
		object.GetLabels()["name"] == c.Namespace
}
