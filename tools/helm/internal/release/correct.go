package release

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// correct applies an object that differs. The body has the resource version of the compared object, so that the API server
// refuses it if another client has changed the object since.
func (c *comparer) correct(
	info *resource.Info, live, body *unstructured.Unstructured, paths []string,
) (*toolv1.ObjectComparison, error) {
	found := result(drifted, "", paths...)
	if isCRD(live) {
		if err := checkReplaceable(live, body, false, nil); err != nil {
			found.Reason = failure.Proto(err).GetMessage()
			return found, nil
		}
	}
	if err := c.release.client.checkResource(info); err != nil {
		found.Reason = failure.Proto(err).GetMessage()
		return found, nil
	}
	c.reportCorrection(info)
	if _, err := applyObject(info, body, c.force, false); err != nil {
		return found, err
	}
	return result(corrected, "", paths...), nil
}

// handleMissing creates an object that does not exist, if requested.
func (c *comparer) handleMissing(info *resource.Info, recorded *unstructured.Unstructured) (*toolv1.ObjectComparison, error) {
	if !c.spec.Correct {
		return result(missing, ""), nil
	}
	if err := c.release.client.checkResource(info); err != nil {
		return result(missing, failure.Proto(err).GetMessage()), nil
	}
	c.reportCorrection(info)
	// Without force: another client may create the object at the same time.
	if _, err := applyObject(info, c.body(recorded), false, false); err != nil {
		return result(missing, ""), err
	}
	return result(corrected, ""), nil
}

func (c *comparer) reportCorrection(info *resource.Info) {
	kind := info.Mapping.GroupVersionKind.Kind
	c.release.operation.Log.Info("an object is corrected", "kind", kind, "object", info.Namespace+"/"+info.Name)
	c.release.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, fmt.Sprintf("correcting %s %s", kind, info.Name), objectRef(info))
}

// applyObject applies an object server-side and returns it as the API server stores it, or would store it.
func applyObject(info *resource.Info, body *unstructured.Unstructured, force, dryRun bool) (*unstructured.Unstructured, error) {
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, body)
	if err != nil {
		return nil, err
	}
	// The recorded object may have been applied by a client that does not validate its fields.
	applied, err := newHelper(info).WithFieldValidation(metav1.FieldValidationIgnore).DryRun(dryRun).
		Patch(info.Namespace, info.Name, types.ApplyPatchType, data, &metav1.PatchOptions{Force: &force})
	if err != nil {
		return nil, err
	}
	return asUnstructured(applied)
}

func asUnstructured(object runtime.Object) (*unstructured.Unstructured, error) {
	found, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, failure.New(failure.Internal, "the API server answered with %T", object)
	}
	return found, nil
}
