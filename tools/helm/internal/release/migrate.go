package release

import (
	"encoding/json"
	"fmt"
	"strings"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/util/retry"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// The objects of a release that was applied client-side have fields that belong to the field manager of the client.
// Server-side apply under another field manager cannot remove these fields. So before the first server-side upgrade,
// Apply moves the fields that Helm applied to FieldManager.
//
// The migration stores no state: the revisions of the release show whether it is needed, and the managed fields of the
// objects show which objects are left. It can be interrupted at any point and repeated.

// migration is an object with fields to move. applied is the managed fields entry of its last applied manifest.
type migration struct {
	info    *resource.Info
	applied metav1.ManagedFieldsEntry
	move    fieldMover
}

// fieldMover returns the managed fields of an object after the migration, and false if there is nothing to migrate.
type fieldMover func(entries []metav1.ManagedFieldsEntry, applied metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, bool, error)

// migrateToServerSide migrates the objects of a release that was applied client-side. It returns false if the release
// was applied server-side.
func (r *Release) migrateToServerSide(last *rspb.Release) (bool, error) {
	if isServerSide(last) && isComplete(last) {
		return false, nil
	}
	revisions, err := r.records.newest(0)
	if err != nil {
		return false, err
	}
	if !needsMigration(revisions) {
		return false, nil
	}
	due, err := r.findMigrations(baseRevision(revisions).Manifest)
	if err != nil {
		return false, err
	}
	if len(due) > 0 {
		r.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, "migrating the field ownership of "+countObjects(len(due)))
	}
	return true, migrateAll(due)
}

func migrateAll(due []migration) error {
	for _, object := range due {
		if err := object.migrate(); err != nil {
			return fmt.Errorf("migrating the field ownership of %s %s: %w",
				object.info.Mapping.GroupVersionKind.Kind, object.info.Name, err)
		}
	}
	return nil
}

// needsMigration reports whether an object may have been written last by a client-side revision. A failed server-side
// revision may not have applied all objects. The revisions are sorted newest first.
func needsMigration(revisions []*rspb.Release) bool {
	for _, revision := range revisions {
		if !isServerSide(revision) {
			return true
		}
		if isComplete(revision) {
			return false
		}
	}
	return false
}

func isServerSide(revision *rspb.Release) bool {
	return revision.ApplyMethod == string(rspb.ApplyMethodServerSideApply)
}

// isComplete reports whether the operation of the revision succeeded.
func isComplete(revision *rspb.Release) bool {
	return revision.Info.Status == rcommon.StatusDeployed || revision.Info.Status == rcommon.StatusSuperseded
}

// baseRevision returns the revision with which Helm compares an upgrade.
func baseRevision(revisions []*rspb.Release) *rspb.Release {
	for _, revision := range revisions {
		if revision.Info.Status == rcommon.StatusDeployed {
			return revision
		}
	}
	return revisions[0]
}

// findMigrations returns the objects to migrate, which must not belong to another release, and changes nothing. It fails if the API
// server cannot apply one of the objects server-side.
func (r *Release) findMigrations(manifest string) ([]migration, error) {
	resources, err := r.client.Client.Build(strings.NewReader(manifest), false)
	if err != nil {
		return nil, &failure.BuildError{Err: flattenAggregate(err)}
	}
	var due []migration
	for _, info := range resources {
		live, err := getLive(info)
		if err != nil {
			return nil, err
		}
		if live == nil || r.client.isOfOther(live) || clientSideManagers(live.GetManagedFields()).Len() == 0 {
			continue
		}
		applied, found, err := dryRunApply(info)
		if err != nil {
			return nil, err
		}
		if found {
			due = append(due, migration{info: info, applied: applied, move: migrateManagedFields})
		}
	}
	return due, nil
}

// dryRunApply applies the object server-side as a dry run and returns the managed fields entry of FieldManager.
func dryRunApply(info *resource.Info) (metav1.ManagedFieldsEntry, bool, error) {
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, info.Object)
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	force := true
	applied, err := newHelper(info).DryRun(true).
		Patch(info.Namespace, info.Name, types.ApplyPatchType, data, &metav1.PatchOptions{Force: &force})
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	object, err := meta.Accessor(applied)
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	entry, found := findApplyEntry(object.GetManagedFields())
	return entry, found, nil
}

// migrate updates the managed fields of the object in one write that changes nothing else.
func (m migration) migrate() error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := getLive(m.info)
		if live == nil || err != nil {
			return err
		}
		entries, due, err := m.move(live.GetManagedFields(), m.applied)
		if !due || err != nil {
			return err
		}
		// The resource version makes the write fail if another client has changed the object.
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": entries},
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		_, err = newHelper(m.info).Patch(m.info.Namespace, m.info.Name, types.JSONPatchType, patch, nil)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// getLive reads the object from the cluster. It returns nil if the object does not exist.
func getLive(info *resource.Info) (metav1.Object, error) {
	live, err := newHelper(info).Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return meta.Accessor(live)
}

func newHelper(info *resource.Info) *resource.Helper {
	return resource.NewHelper(info.Client, info.Mapping).
		WithFieldManager(FieldManager).
		WithFieldValidation(metav1.FieldValidationStrict)
}
