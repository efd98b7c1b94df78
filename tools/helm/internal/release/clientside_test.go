package release

import (
	"testing"

	"helm.sh/helm/v4/pkg/kube"
)

// This test fails if Helm renames the field that its options set.
func TestServerSideOption(t *testing.T) {
	for _, want := range []bool{true, false} {
		create := []kube.ClientCreateOption{kube.ClientCreateOptionServerSideApply(want, false)}
		if got := isServerSideCreate(create); got != want {
			t.Errorf("create: got %v, want %v", got, want)
		}
		update := []kube.ClientUpdateOption{
			kube.ClientUpdateOptionForceReplace(false),
			kube.ClientUpdateOptionServerSideApply(want, false),
			kube.ClientUpdateOptionUpgradeClientSideFieldManager(true),
		}
		if got := isServerSideUpdate(update); got != want {
			t.Errorf("update: got %v, want %v", got, want)
		}
	}
}
