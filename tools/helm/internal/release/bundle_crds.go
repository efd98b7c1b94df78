package release

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// Metadata with which Helm marks the objects of a release (package action, validate.go).
const (
	managedByLabel             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"
	releaseNamespaceAnnotation = "meta.helm.sh/release-namespace"
)

// crdChange is a CRD of a bundle and what exists on the cluster.
type crdChange struct {
	target *unstructured.Unstructured
	// live is nil if the CRD does not exist.
	live *unstructured.Unstructured
}

// applyBundleCRDs creates or replaces the CRDs of a bundle and waits until the API server serves their kinds, so that the other
// objects can use them. Before it changes the first one, it checks all of them.
func (r *Release) applyBundleCRDs(spec ApplySpec) error {
	var changes []crdChange
	for _, object := range spec.rendered.objects {
		if object.IsCRD() {
			changes = append(changes, crdChange{target: r.owned(object.Unstructured)})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(r.session.Config())
	if err != nil {
		return err
	}
	r.operation.Step(toolv1.StepKind_STEP_KIND_CRDS, "applying CRDs: "+countObjects(len(changes)))
	for i := range changes {
		if err := r.checkCRD(client, &changes[i], spec.Options.GetTakeOwnership()); err != nil {
			return err
		}
	}
	var changed []*unstructured.Unstructured
	for _, change := range changes {
		applied, err := client.Resource(crdResource).Apply(context.Background(), change.target.GetName(), change.target,
			metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", change.target.GetName(), err)
		}
		if !change.isServed(applied) {
			changed = append(changed, applied)
		}
	}
	if err := r.waitForCRDs(client, changed); err != nil {
		return err
	}
	return r.waitForSchemas(changes, changed)
}

// schemaDelay is how long an API server may take to use the new schema of a CRD, which it does not report.
const schemaDelay = time.Second

// waitForSchemas waits if a CRD was replaced. The condition Established of a new CRD is enough.
func (r *Release) waitForSchemas(changes []crdChange, changed []*unstructured.Unstructured) error {
	replaced := slices.ContainsFunc(changes, func(change crdChange) bool {
		return change.live != nil && slices.ContainsFunc(changed, func(applied *unstructured.Unstructured) bool {
			return applied.GetName() == change.target.GetName() && applied.GetGeneration() != change.live.GetGeneration()
		})
	})
	if !replaced {
		return nil
	}
	select {
	case <-time.After(schemaDelay):
		return nil
	case <-r.operation.Context().Done():
		return r.operation.Context().Err()
	}
}

// isServed reports whether the API server serves the kinds of the CRD, because applying it changed nothing.
func (c crdChange) isServed(applied *unstructured.Unstructured) bool {
	return c.live != nil && c.live.GetResourceVersion() == applied.GetResourceVersion() && isConditionTrue(c.live, "Established")
}

// owned returns the object with the metadata of the release, which Helm adds to its objects, too.
func (r *Release) owned(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel] = managedByHelm
	object.SetLabels(labels)
	setAnnotation(object, releaseNameAnnotation, r.name)
	setAnnotation(object, releaseNamespaceAnnotation, r.namespace)
	return object
}

// checkCRD reads the existing CRD and checks that it may be replaced.
func (r *Release) checkCRD(client dynamic.Interface, change *crdChange, takeOwnership bool) error {
	name := change.target.GetName()
	live, err := client.Resource(crdResource).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: %w", name, err)
	}
	change.live = live
	if !takeOwnership && !hasSameOwner(live, change.target) {
		return failure.New(failure.Conflict, "CustomResourceDefinition %s exists and does not belong to this release "+
			"(set takeOwnership to adopt it, or delete it)", name)
	}
	if problem := crdProblem(live, change.target); problem != "" {
		return failure.New(failure.Rejected, "CustomResourceDefinition %s cannot be replaced: %s", name, problem)
	}
	return nil
}

// hasSameOwner reports whether both objects have the metadata of the same release.
func hasSameOwner(live, target *unstructured.Unstructured) bool {
	return live.GetLabels()[managedByLabel] == managedByHelm &&
		live.GetAnnotations()[releaseNameAnnotation] == target.GetAnnotations()[releaseNameAnnotation] &&
		live.GetAnnotations()[releaseNamespaceAnnotation] == target.GetAnnotations()[releaseNamespaceAnnotation]
}

// crdProblem returns why replacing a CRD would lose objects, or an empty string.
func crdProblem(live, target *unstructured.Unstructured) string {
	liveScope, _, _ := unstructured.NestedString(live.Object, "spec", "scope")
	if scope, _, _ := unstructured.NestedString(target.Object, "spec", "scope"); scope != liveScope {
		return fmt.Sprintf("its scope is %s and cannot change to %s", liveScope, scope)
	}
	versions := versionNames(target)
	stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
	for _, version := range stored {
		if !slices.Contains(versions, version) {
			return fmt.Sprintf("objects may be stored in version %s, which the new one does not have: migrate them first", version)
		}
	}
	return ""
}

func versionNames(crd *unstructured.Unstructured) []string {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var names []string
	for _, version := range versions {
		if fields, ok := version.(map[string]any); ok {
			if name, ok := fields["name"].(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}
