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

// A release that was made client-side has objects whose fields belong to whoever wrote them. Server-side apply alone
// would neither change nor remove such a field. So before the first server-side upgrade the fields are handed over.
//
// Nothing is recorded about it: whether it is due is read from the release's own revisions, and what is left to do
// from the objects. So it may be cut off anywhere, and done again.

// handover is an object of which someone else holds, client-side, what Helm has applied.
type handover struct {
	info    *resource.Info
	applied metav1.ManagedFieldsEntry
}

// changeOver prepares the objects of a release that was made client-side for server-side apply. False: it was not.
func (r *Release) changeOver(last *rspb.Release) (bool, error) {
	if isServerSide(last) && isGood(last) {
		return false, nil
	}
	revisions, err := r.records.newest(0)
	if err != nil {
		return false, err
	}
	if !mayBeClientSide(revisions) {
		return false, nil
	}
	due, err := r.handovers(current(revisions).Manifest)
	if err != nil {
		return false, err
	}
	if len(due) > 0 {
		r.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, "taking over the fields of "+count(len(due)))
	}
	for _, one := range due {
		if err := one.perform(); err != nil {
			return false, fmt.Errorf("taking over the fields of %s %s: %w", one.info.Mapping.GroupVersionKind.Kind, one.info.Name, err)
		}
	}
	return true, nil
}

// mayBeClientSide says whether, of these revisions, newest first, a client-side one may be the last that wrote some
// object: a server-side revision that failed may not have come to all of them.
func mayBeClientSide(revisions []*rspb.Release) bool {
	for _, revision := range revisions {
		if !isServerSide(revision) {
			return true
		}
		if isGood(revision) {
			return false
		}
	}
	return false
}

func isServerSide(revision *rspb.Release) bool {
	return revision.ApplyMethod == string(rspb.ApplyMethodServerSideApply)
}

// isGood says whether the revision has come to its end.
func isGood(revision *rspb.Release) bool {
	return revision.Info.Status == rcommon.StatusDeployed || revision.Info.Status == rcommon.StatusSuperseded
}

// current is the revision that Helm compares an upgrade with.
func current(revisions []*rspb.Release) *rspb.Release {
	for _, revision := range revisions {
		if revision.Info.Status == rcommon.StatusDeployed {
			return revision
		}
	}
	return revisions[0]
}

// handovers finds what has to be handed over, and changes nothing. It fails if the API server does not apply one of
// the objects server-side.
func (r *Release) handovers(manifest string) ([]handover, error) {
	resources, err := r.client.Client.Build(strings.NewReader(manifest), false)
	if err != nil {
		return nil, &failure.Build{Err: exposed(err)}
	}
	var due []handover
	for _, info := range resources {
		live, err := read(info)
		if err != nil {
			return nil, err
		}
		if live == nil || clientSideWriters(live.GetManagedFields()).Len() == 0 {
			continue
		}
		applied, found, err := previewed(info)
		if err != nil {
			return nil, err
		}
		if found {
			due = append(due, handover{info: info, applied: applied})
		}
	}
	return due, nil
}

// previewed asks the API server which fields the object, applied server-side, would have.
func previewed(info *resource.Info) (metav1.ManagedFieldsEntry, bool, error) {
	data, err := runtime.Encode(unstructured.UnstructuredJSONScheme, info.Object)
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	force := true
	applied, err := helper(info).DryRun(true).
		Patch(info.Namespace, info.Name, types.ApplyPatchType, data, &metav1.PatchOptions{Force: &force})
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	object, err := meta.Accessor(applied)
	if err != nil {
		return metav1.ManagedFieldsEntry{}, false, err
	}
	entry, found := appliedEntry(object.GetManagedFields())
	return entry, found, nil
}

// perform hands the fields over, in one write that changes nothing else.
func (h handover) perform() error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := read(h.info)
		if live == nil || err != nil {
			return err
		}
		entries, due, err := handedOver(live.GetManagedFields(), h.applied)
		if !due || err != nil {
			return err
		}
		// The resource version makes the write fail if someone else has changed the object meanwhile.
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": entries},
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		_, err = helper(h.info).Patch(h.info.Namespace, h.info.Name, types.JSONPatchType, patch, nil)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// read gets the object as it is on the cluster. Nil: it is not there.
func read(info *resource.Info) (metav1.Object, error) {
	live, err := helper(info).Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return meta.Accessor(live)
}

func helper(info *resource.Info) *resource.Helper {
	return resource.NewHelper(info.Client, info.Mapping).
		WithFieldManager(FieldManager).
		WithFieldValidation(metav1.FieldValidationStrict)
}
