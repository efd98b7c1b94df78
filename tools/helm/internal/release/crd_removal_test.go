package release

import (
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/kube"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func TestCRDsAreFoundByGroupAndKind(t *testing.T) {
	got := crdsOf([]*toolv1.ObjectRef{
		{ApiVersion: "v1", Kind: "ConfigMap", Name: "a"},
		{ApiVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "b"},
		{ApiVersion: "apiextensions.k8s.io/v1beta1", Kind: "CustomResourceDefinition", Name: "c"},
		{ApiVersion: "example.invalid/v1", Kind: "CustomResourceDefinition", Name: "d"},
	})
	if want := []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	objects := parse(t, "a.yaml", testObjects)
	if got, want := bundleCRDNames(objects), []string{"things.example.invalid"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCRDsThatThePackageHasAreNotRead(t *testing.T) {
	// Without a session, a request would panic.
	if err := (&Release{}).checkRemovedCRDs([]string{"a", "b"}, []string{"b", "a", "c"}); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestOnlyCRDsThatHelmKeepsMayBeRemoved(t *testing.T) {
	live := crd("Namespaced", nil, "v1")
	err := checkRemovable(live)
	if err == nil || failure.Classify(err).Category != failure.Rejected {
		t.Fatalf("got %v", err)
	}
	for _, text := range []string{"things.example.invalid", "helm.sh/resource-policy: keep", replaceUnsafeAnnotation} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in %q", text, err)
		}
	}
	setAnnotation(live, kube.ResourcePolicyAnno, "delete")
	if err := checkRemovable(live); err == nil {
		t.Error("another policy is accepted")
	}
	setAnnotation(live, kube.ResourcePolicyAnno, kube.KeepPolicy)
	if err := checkRemovable(live); err != nil {
		t.Errorf("got %v", err)
	}
}
