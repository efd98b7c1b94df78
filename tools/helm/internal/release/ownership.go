package release

import (
	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
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

// withoutForeign returns the objects of the last revision without those that Helm's upgrade would delete although they do not
// belong to the release. Like in Helm, an object that cannot be read stays on the cluster.
func (c *client) withoutForeign(original, target kube.ResourceList) kube.ResourceList {
	return original.Filter(func(info *resource.Info) bool {
		return target.Contains(info) || c.mayUpgradeDelete(info)
	})
}

// mayUpgradeDelete reports whether an upgrade may delete an object that the package does not have any more.
func (c *client) mayUpgradeDelete(info *resource.Info) bool {
	if info.Name == "" {
		return false
	}
	live, err := getLive(info)
	if err == nil && live != nil && c.owns(live) {
		return true
	}
	if err != nil || live != nil {
		c.operation.Log.Info("the upgrade keeps an object that does not belong to the release, or that could not be read",
			"kind", info.Mapping.GroupVersionKind.Kind, "object", info.Namespace+"/"+info.Name)
	}
	return false
}
