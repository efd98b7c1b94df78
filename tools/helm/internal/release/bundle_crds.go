package release

import (
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
		changes[i].resource = client.Resource(crdResource)
		if err := changes[i].read(); err != nil {
			return err
		}
		if err := changes[i].checkOwner(spec.Options.GetTakeOwnership()); err != nil {
			return err
		}
		if err := changes[i].check(spec.Options.GetReplaceUnsafeCrds(), r.client.reportLimits); err != nil {
			return err
		}
	}
	return r.replaceCRDs(client, changes)
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

// checkOwner checks that the existing CRD belongs to the release.
func (c *crdChange) checkOwner(takeOwnership bool) error {
	if c.live == nil || takeOwnership || hasSameOwner(c.live, c.target) {
		return nil
	}
	return failure.New(failure.Conflict, "CustomResourceDefinition %s exists and does not belong to this release "+
		"(set takeOwnership to adopt it, or delete it)", c.target.GetName())
}

// hasSameOwner reports whether both objects have the metadata of the same release.
func hasSameOwner(live, target metav1.Object) bool {
	annotations := target.GetAnnotations()
	return isOwnedBy(live, annotations[releaseNameAnnotation], annotations[releaseNamespaceAnnotation])
}

// isOwnedBy reports whether an object has the metadata of a release.
func isOwnedBy(live metav1.Object, name, namespace string) bool {
	annotations := live.GetAnnotations()
	return live.GetLabels()[managedByLabel] == managedByHelm &&
		annotations[releaseNameAnnotation] == name && annotations[releaseNamespaceAnnotation] == namespace
}
