package release

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// releaseNameAnnotation is an annotation that Helm sets on every object of a release. The field manager that wrote it
// client-side installed the release: "helm" for the helm CLI, the name of the binary for a controller.
const releaseNameAnnotation = "meta.helm.sh/release-name"

// clientSideManagers returns the field managers that applied an object client-side with Helm.
func clientSideManagers(entries []metav1.ManagedFieldsEntry) sets.Set[string] {
	managers := sets.New[string]()
	for _, entry := range entries {
		if isUpdate(entry) && (entry.Manager == FieldManager || ownsReleaseName(entry)) {
			managers.Insert(entry.Manager)
		}
	}
	return managers
}

// migrateManagedFields returns the managed fields of an object after the migration: the applied fields belong to
// FieldManager, and the entries of the client-side managers are removed. Other fields of those entries, such as
// defaults of the API server, keep their values and have no owner, so that no later apply removes them. It returns
// false if there is nothing to migrate.
func migrateManagedFields(entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error) {
	return moveFields(entries, applied, clientSideManagers(entries))
}

// moveFields returns the managed fields of an object after the applied fields were moved to FieldManager, without the
// client-side entries of the given managers. It returns false if there is none.
func moveFields(
	entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry, managers sets.Set[string],
) ([]metav1.ManagedFieldsEntry, bool, error) {
	if managers.Len() == 0 {
		return nil, false, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		switch {
		case isUpdate(entry) && managers.Has(entry.Manager):
		case isHelmApply(entry):
			var err error
			if applied, err = mergeFields(applied, entry); err != nil {
				return nil, false, err
			}
		default:
			kept = append(kept, entry)
		}
	}
	return append(kept, applied), true, nil
}

// findApplyEntry returns the server-side apply entry of FieldManager.
func findApplyEntry(entries []metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, bool) {
	at := slices.IndexFunc(entries, isHelmApply)
	if at < 0 {
		return metav1.ManagedFieldsEntry{}, false
	}
	return entries[at], true
}

func isUpdate(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
}

func isHelmApply(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && entry.Manager == FieldManager
}

func ownsReleaseName(entry metav1.ManagedFieldsEntry) bool {
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
	_, owned := fields.Metadata.Annotations["f:"+releaseNameAnnotation]
	return owned
}

// mergeFields adds the fields of an older entry. It skips entries of another API version, whose fields may differ.
func mergeFields(entry, older metav1.ManagedFieldsEntry) (metav1.ManagedFieldsEntry, error) {
	if entry.APIVersion != older.APIVersion || entry.FieldsV1 == nil || older.FieldsV1 == nil {
		return entry, nil
	}
	var ours, previous fieldpath.Set
	if err := ours.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return entry, err
	}
	if err := previous.FromJSON(older.FieldsV1.GetRawReader()); err != nil {
		return entry, err
	}
	fields, err := ours.Union(&previous).ToJSON()
	if err != nil {
		return entry, err
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(fields))
	return entry, nil
}
