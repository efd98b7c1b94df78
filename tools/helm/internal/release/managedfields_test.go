package release

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	update             = metav1.ManagedFieldsOperationUpdate
	apply              = metav1.ManagedFieldsOperationApply
	withReleaseName    = `{"f:data":{"f:old":{}},"f:metadata":{"f:annotations":{"f:meta.helm.sh/release-name":{}}}}`
	withoutReleaseName = `{"f:data":{"f:other":{}}}`
)

func entry(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestClientSideManagers(t *testing.T) {
	cases := map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"a controller that installed the release": {entry("manager", update, "", withReleaseName), true},
		"the helm CLI":                        {entry("helm", update, "", withoutReleaseName), true},
		"kubectl edit":                        {entry("kubectl-edit", update, "", withoutReleaseName), false},
		"another controller of the same name": {entry("manager", update, "", withoutReleaseName), false},
		"a status":                            {entry("manager", update, "status", withReleaseName), false},
		"server-side":                         {entry("helm", apply, "", withReleaseName), false},
		"another server-side manager":         {entry("manager", apply, "", withReleaseName), false},
		"no fields":                           {metav1.ManagedFieldsEntry{Manager: "x", Operation: update}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			managers := clientSideManagers([]metav1.ManagedFieldsEntry{c.entry})
			if got := managers.Has(c.entry.Manager); got != c.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestMigrateManagedFields(t *testing.T) {
	applied := entry("helm", apply, "", `{"f:data":{"f:new":{}}}`)
	others := []metav1.ManagedFieldsEntry{
		entry("kubectl-edit", update, "", withoutReleaseName), entry("manager", update, "status", withoutReleaseName), entry("argo", apply, "", withoutReleaseName),
	}
	before := append([]metav1.ManagedFieldsEntry{
		entry("manager", update, "", withReleaseName), entry("helm", update, "", withoutReleaseName), entry("helm", apply, "", `{"f:data":{"f:kept":{}}}`),
	}, others...)
	after, due, err := migrateManagedFields(before, applied)
	if err != nil || !due {
		t.Fatalf("got %v, %v", due, err)
	}
	if len(after) != len(others)+1 {
		t.Fatalf("got %v", after)
	}
	for i, other := range others {
		if after[i].Manager != other.Manager || after[i].FieldsV1.GetRawString() != other.FieldsV1.GetRawString() {
			t.Errorf("%s became %v", other.Manager, after[i])
		}
	}
	ours, _ := findApplyEntry(after)
	if got, want := ours.FieldsV1.GetRawString(), `{"f:data":{"f:kept":{},"f:new":{}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, again, err := migrateManagedFields(after, applied); again || err != nil {
		t.Errorf("the second time: %v, %v", again, err)
	}
}
