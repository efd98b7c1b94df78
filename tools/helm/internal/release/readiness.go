package release

import (
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
)

// alwaysReady are the kinds whose objects are ready as soon as they exist. Waiting for them would list and watch all
// objects of the kind in the namespace: for Secrets alone that may take more memory than everything else.
var alwaysReady = map[schema.GroupKind]bool{
	{Kind: "ConfigMap"}:      true,
	{Kind: "Secret"}:         true,
	{Kind: "ServiceAccount"}: true,
	{Kind: "LimitRange"}:     true,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                              true,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:                       true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:                       true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:                true,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                                 true,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:                             true,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   true,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: true,
}

// mayBeUnready returns the objects that may exist without being ready.
func mayBeUnready(resources kube.ResourceList) kube.ResourceList {
	return resources.Filter(func(info *resource.Info) bool {
		return !alwaysReady[info.Mapping.GroupVersionKind.GroupKind()]
	})
}
