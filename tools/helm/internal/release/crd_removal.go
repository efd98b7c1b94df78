package release

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/failure"
)

// Helm's upgrade deletes the objects of the last revision that the package does not have any more. If one of them is a CRD, all
// objects of its kind are deleted with it, also those that users have created.

// removableCRDs returns the names of the CRDs that the upgrade would delete if the package does not have them any more. There are
// none if the request allows it.
func (r *Release) removableCRDs(spec ApplySpec, plan applyPlan, last *rspb.Release) ([]string, error) {
	if !plan.upgrade || spec.Options.GetReplaceUnsafeCrds() {
		return nil, nil
	}
	base := last
	if last.Info.Status != rcommon.StatusDeployed {
		revisions, err := r.records.newest(0)
		if err != nil {
			return nil, err
		}
		base = baseRevision(revisions)
	}
	if !strings.Contains(base.Manifest, crdKind.Kind) {
		return nil, nil
	}
	return crdsOf(inventory(base.Manifest, r.namespace, r.session)), nil
}

// crdsOf returns the names of the CRDs among objects.
func crdsOf(objects []*toolv1.ObjectRef) []string {
	var names []string
	for _, object := range objects {
		if schema.FromAPIVersionAndKind(object.GetApiVersion(), object.GetKind()).GroupKind() == crdKind {
			names = append(names, object.GetName())
		}
	}
	return names
}

// crdNames returns the names of the CRDs among rendered objects.
func crdNames(rendered kube.ResourceList) []string {
	return crdsOf(objectRefs(rendered))
}

// bundleCRDNames returns the names of the CRDs among the objects of a bundle.
func bundleCRDNames(objects []bundle.Object) []string {
	var names []string
	for _, object := range objects {
		if object.IsCRD() {
			names = append(names, object.GetName())
		}
	}
	return names
}

// checkRemovedCRDs fails if one of the removable CRDs is not among those that the package has, and Helm would delete it.
func (r *Release) checkRemovedCRDs(removable, kept []string) error {
	removed := slices.DeleteFunc(slices.Clone(removable), func(name string) bool { return slices.Contains(kept, name) })
	if len(removed) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(r.session.Config())
	if err != nil {
		return err
	}
	for _, name := range removed {
		live, err := client.Resource(crdResource).Get(context.Background(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s: %w", name, err)
		}
		if !r.client.owns(live) {
			// An upgrade does not delete it.
			continue
		}
		if err := checkRemovable(live); err != nil {
			return err
		}
	}
	return nil
}

// checkRemovable fails if Helm would delete a CRD that the package does not have any more.
func checkRemovable(live *unstructured.Unstructured) error {
	if live.GetAnnotations()[kube.ResourcePolicyAnno] == kube.KeepPolicy {
		return nil
	}
	return failure.New(failure.Rejected,
		"CustomResourceDefinition %[1]s is no longer among the objects of the package, and all objects of its kind would be deleted "+
			"with it: annotate it on the cluster with %[2]s: %[3]s to keep it (the annotation %[4]s: \"true\" on the placement or on "+
			"the release object allows deleting it)",
		live.GetName(), kube.ResourcePolicyAnno, kube.KeepPolicy, replaceUnsafeAnnotation)
}
