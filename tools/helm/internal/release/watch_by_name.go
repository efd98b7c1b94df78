package release

import (
	"context"

	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// collection is a kind in a namespace.
type collection struct {
	// resource has no version: one watch shows the objects of all versions.
	resource  schema.GroupResource
	namespace string
}

// onlyNames returns the name of the object in each collection that contains only one of them. An API server can select
// one name, not several.
func onlyNames(resources kube.ResourceList) map[collection]string {
	names := map[collection]string{}
	for _, info := range resources {
		in := collection{resource: info.Mapping.Resource.GroupResource(), namespace: info.Namespace}
		if _, known := names[in]; known {
			names[in] = ""
			continue
		}
		names[in] = info.Name
	}
	return names
}

// byNameFactory makes dynamic clients that list and watch single objects where the client of an operation waits for only
// one object of a collection.
type byNameFactory struct {
	kube.Factory
	client *client
}

func (f byNameFactory) DynamicClient() (dynamic.Interface, error) {
	inner, err := f.Factory.DynamicClient()
	if err != nil {
		return nil, err
	}
	return byNameClient{Interface: inner, client: f.client}, nil
}

type byNameClient struct {
	dynamic.Interface
	client *client
}

func (c byNameClient) Resource(in schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return byNameKind{NamespaceableResourceInterface: c.Interface.Resource(in), client: c.client, resource: in}
}

type byNameKind struct {
	dynamic.NamespaceableResourceInterface
	client   *client
	resource schema.GroupVersionResource
}

// Namespace is called for kinds without namespaces, too.
func (k byNameKind) Namespace(namespace string) dynamic.ResourceInterface {
	in := collection{resource: k.resource.GroupResource(), namespace: namespace}
	return byNameCollection{ResourceInterface: k.NamespaceableResourceInterface.Namespace(namespace), client: k.client, in: in}
}

type byNameCollection struct {
	dynamic.ResourceInterface
	client *client
	in     collection
}

func (c byNameCollection) List(
	ctx context.Context, options metav1.ListOptions,
) (*unstructured.UnstructuredList, error) {
	return c.ResourceInterface.List(ctx, c.selectByName(options))
}

func (c byNameCollection) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return c.ResourceInterface.Watch(ctx, c.selectByName(options))
}

// selectByName selects the only object that the operation waits for. A request with a selector is for other objects, such as the
// Pods of a Deployment.
func (c byNameCollection) selectByName(options metav1.ListOptions) metav1.ListOptions {
	name := c.client.onlyNameIn(c.in)
	if name != "" && options.LabelSelector == "" && options.FieldSelector == "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return options
}
