package release

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// RollbackSpec is the input of Rollback.
type RollbackSpec struct {
	// Revision is the revision to restore. Zero means the newest suitable one.
	Revision int
	Options  *toolv1.RollbackOptions
	// InputDigest is that of the revision to restore.
	InputDigest string
	// RolledBackDigest is that of the inputs which failed.
	RolledBackDigest string
	Recover          bool
	// RollBackDeployed rolls back although the newest revision is deployed and did not fail.
	RollBackDeployed bool
}

// RollbackResult is the result of Rollback.
type RollbackResult struct {
	State *toolv1.ReleaseState
	// Unchanged is set if Rollback created no revision.
	Unchanged bool
	// Values are those of the restored revision, which may be in the error.
	Values map[string]any
	// IgnoredFields are the fields that were left to other field managers.
	IgnoredFields []string
}

// Rollback applies the objects of an earlier revision again and records them as a new revision.
func (r *Release) Rollback(spec RollbackSpec) (RollbackResult, error) {
	if err := r.session.EnsureDiscovery(discoveryMaxAge); err != nil {
		return RollbackResult{}, err
	}
	last, err := r.fetchLast()
	if err != nil {
		return RollbackResult{}, err
	}
	revisions, err := r.records.newest(0)
	if err != nil {
		return RollbackResult{}, err
	}
	plan, err := r.planRollback(spec, revisions)
	if err != nil {
		return RollbackResult{}, err
	}
	result := RollbackResult{Unchanged: plan.target == nil, Values: plan.values(last)}
	switch {
	case plan.unchanged:
		r.operation.Log.Info("the newest revision is deployed after this rollback, nothing is changed", "revision", last.Version)
	case plan.markOnly:
		err = r.markRolledBack(spec, last)
	default:
		err = r.rollBack(spec, plan, revisions)
	}
	if err != nil {
		return result, err
	}
	result.IgnoredFields = r.client.ignoredFields()
	result.State, err = r.state()
	return result, err
}

// rollbackPlan is how Rollback handles the current state of the release.
type rollbackPlan struct {
	// unchanged is set if the last revision is the result of the same rollback.
	unchanged bool
	// markOnly is set if the last revision is deployed with the inputs to restore, because the inputs that are rolled back
	// failed before they created a revision.
	markOnly bool
	// unlock is set if the pending last revision must be marked as failed.
	unlock bool
	// target is the revision to restore, or nil if no revision is created.
	target *rspb.Release
}

// values returns the values of the revision that is deployed after the rollback.
func (p rollbackPlan) values(last *rspb.Release) map[string]any {
	if p.target == nil {
		return last.Config
	}
	return p.target.Config
}

// planRollback checks the request against the revisions, newest first.
func (r *Release) planRollback(spec RollbackSpec, revisions []*rspb.Release) (rollbackPlan, error) {
	if len(revisions) == 0 {
		return rollbackPlan{}, failure.New(failure.Conflict, "the release %s/%s does not exist", r.namespace, r.name)
	}
	last := revisions[0]
	plan := rollbackPlan{}
	switch status := last.Info.Status; {
	case status.IsPending() && (!spec.Recover || mayBeRunning(last, spec.Options.GetTimeout().AsDuration())):
		return plan, failure.New(failure.Conflict,
			"revision %d of the release is %s: another operation is running or was interrupted", last.Version, status)
	case status.IsPending():
		plan.unlock = true
	case status == rcommon.StatusUninstalling || status == rcommon.StatusUninstalled:
		return plan, failure.New(failure.Conflict, "revision %d of the release is %s: there is nothing to roll back",
			last.Version, status)
	case status == rcommon.StatusDeployed:
		done, err := planDeployed(spec, last)
		if err != nil || done.unchanged || done.markOnly {
			return done, err
		}
	}
	target, err := rollbackTarget(spec, revisions[1:])
	if err != nil {
		return rollbackPlan{}, err
	}
	plan.target = target
	return plan, nil
}

// foreignOperationLimit is the age from which a pending revision of another client counts as interrupted, unless the timeout of
// the operation is longer.
const foreignOperationLimit = 10 * time.Minute

// mayBeRunning reports whether another client may still work on a pending revision. Chandler runs one operation of a release at
// a time.
func mayBeRunning(pending *rspb.Release, timeout time.Duration) bool {
	isOwn := inputDigest(pending.Labels, pending.Version) != ""
	return !isOwn && time.Since(pending.Info.LastDeployed) < max(foreignOperationLimit, timeout)
}

// planDeployed plans for a last revision that is deployed.
func planDeployed(spec RollbackSpec, last *rspb.Release) (rollbackPlan, error) {
	inputs := inputDigest(last.Labels, last.Version)
	isMarked := spec.RolledBackDigest == rolledBackDigest(last.Labels, last.Version)
	isRestored := spec.InputDigest != "" && spec.InputDigest == inputs
	switch {
	case isMarked && (spec.RolledBackDigest != "" || isRestored):
		return rollbackPlan{unchanged: true}, nil
	case spec.RolledBackDigest != "" && spec.RolledBackDigest == inputs && (spec.RollBackDeployed || testsFailed(last)):
		return rollbackPlan{}, nil
	case spec.RolledBackDigest != "" && spec.RolledBackDigest == inputs:
		return rollbackPlan{}, failure.New(failure.Conflict,
			"revision %d is deployed with the inputs that are to be rolled back: they did not fail", last.Version)
	case isRestored:
		return rollbackPlan{markOnly: true}, nil
	case spec.RollBackDeployed:
		return rollbackPlan{}, nil
	case spec.RolledBackDigest != "" && inputs == "":
		return rollbackPlan{}, failure.New(failure.Conflict,
			"another client has deployed revision %d: it is not rolled back", last.Version)
	case spec.RolledBackDigest != "":
		return rollbackPlan{}, failure.New(failure.Conflict,
			"revision %d is deployed with other inputs than those that are to be rolled back", last.Version)
	}
	return rollbackPlan{}, nil
}

// testsFailed reports whether the last run of a test of the revision has failed, which its record contains.
func testsFailed(revision *rspb.Release) bool {
	return slices.ContainsFunc(testHooks(revision.Hooks), func(test *rspb.Hook) bool {
		return test.LastRun.Phase == rspb.HookPhaseFailed
	})
}

// rollbackTarget returns the revision to restore. The earlier revisions are sorted newest first.
func rollbackTarget(spec RollbackSpec, earlier []*rspb.Release) (*rspb.Release, error) {
	hasInputs := func(revision *rspb.Release) bool {
		return spec.InputDigest == "" || inputDigest(revision.Labels, revision.Version) == spec.InputDigest
	}
	if spec.Revision == 0 {
		at := slices.IndexFunc(earlier, func(revision *rspb.Release) bool { return isComplete(revision) && hasInputs(revision) })
		if at < 0 {
			return nil, failure.New(failure.Conflict, "the release has no earlier revision to roll back to")
		}
		return earlier[at], nil
	}
	at := slices.IndexFunc(earlier, func(revision *rspb.Release) bool { return revision.Version == spec.Revision })
	switch {
	case at < 0:
		return nil, failure.New(failure.Conflict, "the release has no earlier revision %d to roll back to", spec.Revision)
	case !isComplete(earlier[at]):
		return nil, failure.New(failure.Conflict, "the release cannot be rolled back to revision %d, which is %s",
			spec.Revision, earlier[at].Info.Status)
	case !hasInputs(earlier[at]):
		return nil, failure.New(failure.Conflict, "revision %d was created from other inputs than requested", spec.Revision)
	}
	return earlier[at], nil
}

// markRolledBack stores the inputs that are rolled back with the last revision.
func (r *Release) markRolledBack(spec RollbackSpec, last *rspb.Release) error {
	labels, err := rollbackLabels(spec, last.Version)
	if err != nil {
		return err
	}
	r.records.setLabels(recordName(r.name, last.Version), labels)
	return r.configuration().Releases.Update(last)
}

// rollBack creates the next revision. The revisions are sorted newest first.
func (r *Release) rollBack(spec RollbackSpec, plan rollbackPlan, revisions []*rspb.Release) error {
	if err := r.client.rules.checkNamespace(r.namespace); err != nil {
		return err
	}
	if err := r.checkRevision(plan.target); err != nil {
		return err
	}
	last, err := r.recover(applyPlan{unlock: plan.unlock}, revisions[0])
	if err != nil {
		return err
	}
	if r.client.leftovers, err = r.findLeftovers(revisions); err != nil {
		return err
	}
	options := &toolv1.ApplyOptions{FieldConflicts: spec.Options.GetFieldConflicts(), Force: spec.Options.GetForce()}
	method, err := r.applyMethod(options, true, last)
	if err != nil {
		return err
	}
	labels, err := rollbackLabels(spec, last.Version+1)
	if err != nil {
		return err
	}
	r.records.setLabels(recordName(r.name, last.Version+1), labels)
	r.client.startAction(verbRollback)
	r.client.ignoreConflicts.Store(method.ignoreConflicts)
	r.operation.Step(toolv1.StepKind_STEP_KIND_ROLLING_BACK, fmt.Sprintf("rolling back to revision %d", plan.target.Version))
	if err := r.runRollback(spec, method, plan.target.Version); err != nil {
		r.failPending(last.Version+1, err)
		return r.client.wrapError(err)
	}
	return r.records.writeError()
}

func (r *Release) runRollback(spec RollbackSpec, method applyMethod, revision int) error {
	rollback := action.NewRollback(r.configuration())
	rollback.Version = revision
	rollback.ServerSideApply = strconv.FormatBool(method.serverSide)
	rollback.ForceConflicts = method.forceConflicts
	rollback.ForceReplace = method.forceReplace
	rollback.DisableHooks = spec.Options.GetDisableHooks()
	rollback.WaitStrategy = kube.HookOnlyStrategy
	if spec.Options.GetWait() {
		rollback.WaitStrategy = kube.StatusWatcherStrategy
	}
	rollback.WaitForJobs = spec.Options.GetWaitForJobs()
	rollback.Timeout = r.operation.Timeout()
	rollback.MaxHistory = int(spec.Options.GetMaxHistory())
	return rollback.Run(r.name)
}

// failPending marks the revision of a failed rollback as failed. Helm leaves it pending if a hook fails.
func (r *Release) failPending(revision int, cause error) {
	last, err := r.last()
	if err != nil || last == nil || last.Version != revision || !last.Info.Status.IsPending() {
		return
	}
	last.SetStatus(rcommon.StatusFailed, fmt.Sprintf("Rollback %q failed: %v", r.name, cause))
	if err := r.configuration().Releases.Update(last); err != nil {
		r.operation.Log.Warn("the revision of the failed rollback stays pending", "error", err.Error())
	}
}
