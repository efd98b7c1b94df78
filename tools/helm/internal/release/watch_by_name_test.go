package release

import (
	"testing"

	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
)

func object(group, kind, resourceName, name string) *resource.Info {
	version := schema.GroupVersion{Group: group, Version: "v1"}
	return &resource.Info{
		Name:      name,
		Namespace: "default",
		Mapping: &meta.RESTMapping{
			GroupVersionKind: version.WithKind(kind),
			Resource:         version.WithResource(resourceName),
		},
	}
}

func olderVersion(info *resource.Info) *resource.Info {
	info.Mapping.Resource.Version = "v1beta1"
	info.Mapping.GroupVersionKind.Version = "v1beta1"
	return info
}

func TestObjectsWithoutStatusAreNotWaitedFor(t *testing.T) {
	deployment := object("apps", "Deployment", "deployments", "web")
	resources := kube.ResourceList{
		object("", "Secret", "secrets", "web"),
		deployment,
		object("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "web"),
	}
	if got := mayBeUnready(resources); len(got) != 1 || got[0] != deployment {
		t.Errorf("got %v", got)
	}
}

func TestTheOnlyObjectOfAKindIsSelectedByName(t *testing.T) {
	client := &client{}
	client.waitsFor(kube.ResourceList{
		object("apps", "Deployment", "deployments", "web"),
		object("", "Service", "services", "web"),
		object("", "Service", "services", "web-metrics"),
		object("", "Service", "services", "web-webhook"),
		object("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "web"),
		olderVersion(object("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "web-old")),
	})
	selected := func(group, name, namespace string, options metav1.ListOptions) string {
		in := collection{schema.GroupResource{Group: group, Resource: name}, namespace}
		return byNameCollection{client: client, in: in}.selectByName(options).FieldSelector
	}
	for _, test := range []struct {
		name, got, want string
	}{
		{"one object", selected("apps", "deployments", "default", metav1.ListOptions{}), "metadata.name=web"},
		{"several objects", selected("", "services", "default", metav1.ListOptions{}), ""},
		{"two versions", selected("autoscaling", "horizontalpodautoscalers", "default", metav1.ListOptions{}), ""},
		{"another namespace", selected("apps", "deployments", "other", metav1.ListOptions{}), ""},
		{"with a selector", selected("apps", "deployments", "default", metav1.ListOptions{LabelSelector: "app=web"}), ""},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, test.got, test.want)
		}
	}
}
