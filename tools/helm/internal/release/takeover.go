package release

import (
	"bytes"
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/kube"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/failure"
)

// The objects of a bundle that takes ownership may have been written by another client, such as a ClusterResourceSet of Cluster
// API or kubectl. Their fields belong to the field manager of that client. As long as they do, server-side apply reports a
// conflict for every change, and does not remove a field that is no longer in the bundle. So before such a bundle is applied, the
// fields that it contains are moved to FieldManager. As for a migration, no state is stored.

// prepareBundle prepares the objects on the cluster for the objects of a bundle.
func (r *Release) prepareBundle(spec ApplySpec, method applyMethod, removable []string) error {
	if err := r.checkRemovedCRDs(removable, bundleCRDNames(spec.rendered.objects)); err != nil {
		return err
	}
	if err := r.applyBundleCRDs(spec); err != nil {
		return err
	}
	if !method.serverSide || !spec.Options.GetTakeOwnership() {
		return nil
	}
	return r.takeOverFields(spec.rendered.objects)
}

// takeOverFields moves the fields of existing objects to FieldManager. It changes no values, and it fails before the first
// write if the API server cannot apply one of the objects.
func (r *Release) takeOverFields(objects []bundle.Object) error {
	manifest, err := takeOverManifest(objects)
	if err != nil {
		return err
	}
	resources, err := r.client.Client.Build(bytes.NewReader(manifest), false)
	if err != nil {
		return &failure.BuildError{Err: flattenAggregate(err)}
	}
	var due []migration
	for _, info := range resources {
		object, found, err := findTakeOver(info)
		if err != nil {
			return fmt.Errorf("%s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
		}
		if found {
			due = append(due, object)
		}
	}
	if len(due) > 0 {
		r.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, "taking over the fields of "+countObjects(len(due)))
	}
	return migrateAll(due)
}

// findTakeOver returns an object with fields to take over, and false if there are none.
func findTakeOver(info *resource.Info) (migration, bool, error) {
	live, err := getLive(info)
	if err != nil || live == nil || !slices.ContainsFunc(live.GetManagedFields(), isUpdate) {
		return migration{}, false, err
	}
	applied, found, err := dryRunApply(info)
	if err != nil || !found {
		return migration{}, false, err
	}
	_, found, err = takeOverManagedFields(live.GetManagedFields(), applied)
	return migration{info: info, applied: applied, move: takeOverManagedFields}, found, err
}

// takeOverManifest returns the objects as another client has written them: without the annotation that is added to CRDs.
func takeOverManifest(objects []bundle.Object) ([]byte, error) {
	var manifest bytes.Buffer
	for _, object := range objects {
		if object.IsCRD() {
			object.Unstructured = object.DeepCopy()
			annotations := object.GetAnnotations()
			delete(annotations, kube.ResourcePolicyAnno)
			if len(annotations) == 0 {
				annotations = nil
			}
			object.SetAnnotations(annotations)
		}
		text, err := object.YAML()
		if err != nil {
			return nil, err
		}
		manifest.WriteString("---\n")
		manifest.Write(text)
	}
	return manifest.Bytes(), nil
}

// takeOverManagedFields returns the managed fields of an object after the applied fields were moved to FieldManager from
// the clients that wrote all of them. It returns false if there is no such client.
func takeOverManagedFields(
	entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry,
) ([]metav1.ManagedFieldsEntry, bool, error) {
	writers, err := contentWriters(entries, applied)
	if err != nil {
		return nil, false, err
	}
	return moveFields(entries, applied, writers)
}

// contentWriters returns the field managers that wrote, client-side, every field that is applied. A manager that wrote only some
// of them, such as an autoscaler, has changed the object of another client and keeps its fields.
func contentWriters(entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry) (sets.Set[string], error) {
	writers := sets.New[string]()
	fields, err := fieldSet(applied)
	if err != nil {
		return nil, err
	}
	content := fields.Leaves()
	if content.Empty() {
		return writers, nil
	}
	for _, entry := range entries {
		if !isUpdate(entry) || entry.APIVersion != applied.APIVersion {
			continue
		}
		written, err := fieldSet(entry)
		if err != nil {
			return nil, err
		}
		if content.Difference(written).Empty() {
			writers.Insert(entry.Manager)
		}
	}
	return writers, nil
}

func fieldSet(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := &fieldpath.Set{}
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil, err
	}
	return fields, nil
}
