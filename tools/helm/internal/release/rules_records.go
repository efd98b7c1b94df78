package release

import (
	"strings"

	"helm.sh/helm/v4/pkg/storage"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
)

// recordType is the type of the Secrets in which Helm stores releases.
const recordType = "helm.sh/release.v1"

// isRecord reports whether Helm takes an object for the record of a release, or for one of its ConfigMap storage. A package with
// such an object could say what other releases of the namespace contain, and which hooks they run.
func isRecord(kind schema.GroupKind, object runtime.Object) bool {
	if kind != secretKind && kind != configMapKind {
		return false
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	name := metadata.GetName()
	if name == "" {
		name = metadata.GetGenerateName()
	}
	return metadata.GetLabels()["owner"] == "helm" || strings.HasPrefix(name, storage.HelmStorageType+".") ||
		secretType(object) == recordType
}

// secretType returns the type of a Secret, or an empty string.
func secretType(object runtime.Object) string {
	switch object := object.(type) {
	case *corev1.Secret:
		return string(object.Type)
	case *unstructured.Unstructured:
		text, _, _ := unstructured.NestedString(object.Object, "type")
		return text
	}
	return ""
}
