package release

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// hasNamespace reports whether the namespace of the release is known to exist. An account that is impersonated need not be allowed
// to create namespaces, and Helm would create one without reading it, so it is read then.
func (r *Release) hasNamespace() (bool, error) {
	if r.session.NamespaceCached(r.namespace) || !r.session.Impersonates() {
		return r.session.NamespaceCached(r.namespace), nil
	}
	core, err := typedcorev1.NewForConfig(r.session.OwnConfig())
	if err != nil {
		return false, err
	}
	_, err = core.Namespaces().Get(context.Background(), r.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
