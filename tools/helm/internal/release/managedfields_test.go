package release

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	update = metav1.ManagedFieldsOperationUpdate
	apply  = metav1.ManagedFieldsOperationApply
	marked = `{"f:data":{"f:old":{}},"f:metadata":{"f:annotations":{"f:meta.helm.sh/release-name":{}}}}`
	bare   = `{"f:data":{"f:other":{}}}`
)

func entry(manager string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestClientSideWriters(t *testing.T) {
	cases := map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"a controller that made the release":  {entry("manager", update, "", marked), true},
		"the helm CLI":                        {entry("helm", update, "", bare), true},
		"a person":                            {entry("kubectl-edit", update, "", bare), false},
		"another controller of the same name": {entry("manager", update, "", bare), false},
		"a status":                            {entry("manager", update, "status", marked), false},
		"server-side":                         {entry("helm", apply, "", marked), false},
		"someone who applies server-side":     {entry("manager", apply, "", marked), false},
		"no fields":                           {metav1.ManagedFieldsEntry{Manager: "x", Operation: update}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			writers := clientSideWriters([]metav1.ManagedFieldsEntry{c.entry})
			if got := writers.Has(c.entry.Manager); got != c.want {
				t.Fatalf("got %v", got)
			}
		})
	}
}

func TestHandedOver(t *testing.T) {
	applied := entry("helm", apply, "", `{"f:data":{"f:new":{}}}`)
	others := []metav1.ManagedFieldsEntry{
		entry("kubectl-edit", update, "", bare), entry("manager", update, "status", bare), entry("argo", apply, "", bare),
	}
	before := append([]metav1.ManagedFieldsEntry{
		entry("manager", update, "", marked), entry("helm", update, "", bare), entry("helm", apply, "", `{"f:data":{"f:kept":{}}}`),
	}, others...)
	after, due, err := handedOver(before, applied)
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
	ours, _ := appliedEntry(after)
	if got, want := ours.FieldsV1.GetRawString(), `{"f:data":{"f:kept":{},"f:new":{}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, again, err := handedOver(after, applied); again || err != nil {
		t.Errorf("the second time: %v, %v", again, err)
	}
}
