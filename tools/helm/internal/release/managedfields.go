package release

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// releaseMark is an annotation that Helm writes on every object of a release. Who has written it client-side is who
// made the release, under whatever name: the helm CLI is "helm", a controller is called as its binary.
const releaseMark = "meta.helm.sh/release-name"

// clientSideWriters are the managers that wrote an object for Helm, client-side.
func clientSideWriters(entries []metav1.ManagedFieldsEntry) sets.Set[string] {
	writers := sets.New[string]()
	for _, entry := range entries {
		if isUpdate(entry) && (entry.Manager == FieldManager || ownsMark(entry)) {
			writers.Insert(entry.Manager)
		}
	}
	return writers
}

// handedOver is what the managed fields of an object become: what was applied last is the field manager's, and the
// entries of the client-side writers are gone. Whatever else those entries held (defaults of the API server, fields
// that another program of the same name wrote) stays in the object and is nobody's: no later apply takes it away.
// False: there is nothing to hand over.
func handedOver(entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error) {
	writers := clientSideWriters(entries)
	if writers.Len() == 0 {
		return nil, false, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		switch {
		case isUpdate(entry) && writers.Has(entry.Manager):
		case isApplied(entry):
			var err error
			if applied, err = joined(applied, entry); err != nil {
				return nil, false, err
			}
		default:
			kept = append(kept, entry)
		}
	}
	return append(kept, applied), true, nil
}

// appliedEntry is what the field manager has applied.
func appliedEntry(entries []metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, bool) {
	at := slices.IndexFunc(entries, isApplied)
	if at < 0 {
		return metav1.ManagedFieldsEntry{}, false
	}
	return entries[at], true
}

func isUpdate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

func isApplied(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && entry.Manager == FieldManager
}

func ownsMark(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return false
	}
	_, owned := fields.Metadata.Annotations["f:"+releaseMark]
	return owned
}

// joined adds the fields of an older entry. Fields of another version of the API have other names.
func joined(entry, older metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, error) {
	if entry.APIVersion != older.APIVersion || entry.FieldsV1 == nil || older.FieldsV1 == nil {
		return entry, nil
	}
	var ours, theirs fieldpath.Set
	if err := ours.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return entry, err
	}
	if err := theirs.FromJSON(older.FieldsV1.GetRawReader()); err != nil {
		return entry, err
	}
	fields, err := ours.Union(&theirs).ToJSON()
	if err != nil {
		return entry, err
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(fields))
	return entry, nil
}
