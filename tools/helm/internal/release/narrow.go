package release

import (
	"context"

	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
)

// alwaysReady are the kinds whose objects are ready as soon as they exist. Waiting for them would list and watch all
// objects of the kind in the namespace: for Secrets alone that may be more than everything else.
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

// collection is a kind in a namespace.
type collection struct {
	resource  schema.GroupVersionResource
	namespace string
}

// onlyNames returns the name of the object in each collection that contains only one of them. An API server can select
// one name, not several.
func onlyNames(resources kube.ResourceList) map[collection]string {
	names := map[collection]string{}
	for _, info := range resources {
		in := collection{resource: info.Mapping.Resource, namespace: info.Namespace}
		if _, known := names[in]; known {
			names[in] = ""
			continue
		}
		names[in] = info.Name
	}
	return names
}

// narrowFactory makes dynamic clients that list and watch single objects where the client of an operation waits for only
// one object of a collection.
type narrowFactory struct {
	kube.Factory
	client *client
}

func (f narrowFactory) DynamicClient() (dynamic.Interface, error) {
	inner, err := f.Factory.DynamicClient()
	if err != nil {
		return nil, err
	}
	return narrowClient{Interface: inner, client: f.client}, nil
}

type narrowClient struct {
	dynamic.Interface
	client *client
}

func (c narrowClient) Resource(in schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return narrowKind{NamespaceableResourceInterface: c.Interface.Resource(in), client: c.client, resource: in}
}

type narrowKind struct {
	dynamic.NamespaceableResourceInterface
	client   *client
	resource schema.GroupVersionResource
}

// Namespace is called for kinds without namespaces, too.
func (k narrowKind) Namespace(namespace string) dynamic.ResourceInterface {
	in := collection{resource: k.resource, namespace: namespace}
	return narrowCollection{ResourceInterface: k.NamespaceableResourceInterface.Namespace(namespace), client: k.client, in: in}
}

type narrowCollection struct {
	dynamic.ResourceInterface
	client *client
	in     collection
}

func (c narrowCollection) List(
	ctx context.Context, options metav1.ListOptions,
) (*unstructured.UnstructuredList, error) {
	return c.ResourceInterface.List(ctx, c.narrow(options))
}

func (c narrowCollection) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return c.ResourceInterface.Watch(ctx, c.narrow(options))
}

// narrow selects the only object that the operation waits for. A request with a selector is for other objects, such as the
// Pods of a Deployment.
func (c narrowCollection) narrow(options metav1.ListOptions) metav1.ListOptions {
	name := c.client.onlyNameIn(c.in)
	if name != "" && options.LabelSelector == "" && options.FieldSelector == "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return options
}
