package release

import (
	"fmt"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
)

// replaceImmutable deletes those objects with the annotation chandler.dev/replace whose immutable fields change, so that Helm
// creates them again. It can be interrupted at any point: the next operation creates what is missing.
func (c *client) replaceImmutable(target kube.ResourceList) error {
	for _, info := range target {
		if !mayReplace(info) {
			continue
		}
		if err := c.replaceIfImmutable(info); err != nil {
			return fmt.Errorf("replacing %s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
		}
	}
	return nil
}

func mayReplace(info *resource.Info) bool {
	object, err := meta.Accessor(info.Object)
	return err == nil && object.GetAnnotations()[bundle.ReplaceAnnotation] == bundle.ReplaceWhenImmutable
}

func (c *client) replaceIfImmutable(info *resource.Info) error {
	live, err := getLive(info)
	if err != nil || live == nil {
		return err
	}
	// Helm reports other errors.
	if _, _, err := dryRunApply(info); !apierrors.IsInvalid(err) || !isValidNew(info) {
		return nil
	}
	c.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING,
		fmt.Sprintf("replacing %s %s, because an immutable field changes", info.Mapping.GroupVersionKind.Kind, info.Name), objectRef(info))
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	_, err = newHelper(info).DeleteWithOptions(info.Namespace, info.Name, &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return c.waitForDeletion(info, uid)
}

// isValidNew reports whether the API server would accept the object if it did not exist. Then it is invalid only as a change of
// the existing object.
func isValidNew(info *resource.Info) bool {
	_, err := newHelper(info).DryRun(true).Create(info.Namespace, true, info.Object.DeepCopyObject())
	return apierrors.IsAlreadyExists(err)
}

// waitForDeletion waits until the object with this UID is deleted.
func (c *client) waitForDeletion(info *resource.Info, uid types.UID) error {
	for {
		live, err := getLive(info)
		if err != nil {
			return err
		}
		if live == nil || live.GetUID() != uid {
			return nil
		}
		if err := waitToPoll(c.operation, "deleted", info.Mapping.GroupVersionKind.Kind+" "+info.Name); err != nil {
			return err
		}
	}
}
