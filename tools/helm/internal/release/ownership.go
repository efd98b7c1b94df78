package release

import (
	"fmt"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// A record says which objects a revision has. It does not prove that they belong to the release: a package can list objects of
// others and fail before it changes them, and users who may write Secrets in the namespace can write records. Helm's uninstall
// deletes only objects with the metadata of the release. The driver does the same in upgrades, and moves no managed fields of objects
// of other releases.

// owns reports whether an object on the cluster has the metadata of the release.
func (c *client) owns(live metav1.Object) bool {
	return isOwnedBy(live, c.release, c.Namespace)
}

// isOfOther reports whether an object on the cluster has the metadata of another release. An object without this metadata has lost
// it.
func (c *client) isOfOther(live metav1.Object) bool {
	return otherOwner(live, c.release, c.Namespace) != ""
}

// otherOwner returns the release that an object belongs to if it is not the given one.
func otherOwner(live metav1.Object, release, releaseNamespace string) string {
	annotations := live.GetAnnotations()
	name, hasName := annotations[releaseNameAnnotation]
	namespace, hasNamespace := annotations[releaseNamespaceAnnotation]
	if (!hasName || name == release) && (!hasNamespace || namespace == releaseNamespace) {
		return ""
	}
	return namespace + "/" + name
}

// updateForUpgrade applies objects, and deletes those that the package does not have any more. It fails if one of these could not be
// read: Helm would leave it behind and report success. Everything else is applied before, because that may repair what the read has
// failed for, such as the conversion webhook of a CRD. The next upgrade reads the object again: the last revision that was deployed
// has it.
func (c *client) updateForUpgrade(original, target kube.ResourceList, options []kube.ClientUpdateOption) (*kube.Result, error) {
	original, unread := c.withoutForeign(original, target)
	result, err := c.update(original, target, options)
	if err != nil {
		return result, err
	}
	return result, unread
}

// withoutForeign returns the objects of the last revision without those that Helm's upgrade would delete although they do not
// belong to the release, or may not. The error is that of the first object that could not be read.
func (c *client) withoutForeign(original, target kube.ResourceList) (kube.ResourceList, error) {
	var unread error
	own := original.Filter(func(info *resource.Info) bool {
		if target.Contains(info) {
			return true
		}
		mayDelete, err := c.mayUpgradeDelete(info)
		if unread == nil {
			unread = err
		}
		return mayDelete
	})
	return own, unread
}

// mayUpgradeDelete reports whether an upgrade may delete an object that the package does not have any more. Like in Helm, an object
// that may not be read stays on the cluster.
func (c *client) mayUpgradeDelete(info *resource.Info) (bool, error) {
	if info.Name == "" {
		return false, nil
	}
	live, err := getLive(info)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		c.reportKept(info, "which may not be read")
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s, which the package does not have any more: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
	case live == nil:
		return false, nil
	case !c.owns(live):
		c.reportKept(info, "which does not belong to the release")
		return false, nil
	}
	return true, nil
}

// reportKept reports an object that stays on the cluster: no later revision lists it.
func (c *client) reportKept(info *resource.Info, why string) {
	kind := info.Mapping.GroupVersionKind.Kind
	c.operation.Log.Info("keeping an object, "+why, "kind", kind, "object", info.Namespace+"/"+info.Name)
	c.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, fmt.Sprintf("keeping %s %s, %s", kind, info.Name, why), objectRef(info))
}
