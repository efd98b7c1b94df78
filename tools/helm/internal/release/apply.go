package release

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/chart"
	"chandler.dev/tools/helm/internal/failure"
)

// Application is what to apply.
type Application struct {
	Chart       *chart.Chart
	Values      map[string]any
	Action      toolv1.ApplyAction
	Options     *toolv1.ApplyOptions
	InputDigest string
	Recover     bool
}

// Apply installs or upgrades the release.
func (r *Release) Apply(what Application) (*toolv1.ReleaseState, error) {
	if err := what.Chart.Installable(); err != nil {
		return nil, err
	}
	if err := r.prepare(what.Chart); err != nil {
		return nil, err
	}
	last, err := r.fetched()
	if err != nil {
		return nil, err
	}
	next, err := r.plan(what, last)
	if err != nil {
		return nil, err
	}
	if last, err = r.recover(next, last); err != nil {
		return nil, err
	}
	how, err := r.method(what.Options, next.upgrade, last)
	if err != nil {
		return nil, err
	}
	revision := 1
	if last != nil {
		revision = last.Version + 1
	}
	labels, err := inputLabels(what.InputDigest, revision)
	if err != nil {
		return nil, err
	}
	if err := r.applyCRDs(what); err != nil {
		return nil, err
	}
	if next.upgrade {
		r.client.begin(verbUpgrade)
		err = r.upgrade(what, how, labels)
	} else {
		r.client.begin(verbInstall)
		err = r.install(what, how, labels, last != nil)
	}
	if err != nil {
		return nil, r.client.typed(err)
	}
	if err := r.records.written(); err != nil {
		return nil, err
	}
	return r.state()
}

// prepare makes sure that the cluster's APIs are known and that the chart may run on its version.
func (r *Release) prepare(chart *chart.Chart) error {
	constraint := chart.KubernetesConstraint()
	var err error
	if chart.ReadsCapabilities || constraint != "" {
		err = r.session.PrepareToShow(apisMaxAgeRead)
	} else {
		err = r.session.Prepare(apisMaxAge)
	}
	if err != nil {
		return err
	}
	kubernetes := r.session.Capabilities().KubeVersion
	if constraint != "" && !chartutil.IsCompatibleRange(constraint, kubernetes.String()) {
		return failure.New(failure.InvalidPackage,
			"the package wants Kubernetes %s, and the cluster runs %s", constraint, kubernetes.Version)
	}
	return nil
}

// install makes sure of the namespace only where no operation has succeeded before, and where it has gone since.
func (r *Release) install(what Application, how method, labels map[string]string, replace bool) error {
	create := what.Options.GetCreateNamespace()
	seen := r.session.HasSeenNamespace(r.namespace)
	err := r.installInto(create && !seen, what, how, labels, replace)
	if create && seen && apierrors.IsNotFound(err) {
		err = r.installInto(true, what, how, labels, replace)
	}
	r.session.NoteNamespace(r.namespace, err == nil)
	return err
}

func (r *Release) installInto(
	createNamespace bool, what Application, how method, labels map[string]string, replace bool,
) error {
	config := r.configuration()
	config.Releases.MaxHistory = int(what.Options.GetMaxHistory())
	install := action.NewInstall(config)
	install.ReleaseName = r.name
	install.Namespace = r.namespace
	install.CreateNamespace = createNamespace
	install.Replace = replace
	install.Labels = labels
	install.SkipCRDs = true // A step of its own.
	install.DisableOpenAPIValidation = true
	install.ServerSideApply = how.serverSide
	install.ForceConflicts = how.forceConflicts
	install.ForceReplace = how.forceReplace
	install.TakeOwnership = what.Options.GetTakeOwnership()
	install.DisableHooks = what.Options.GetDisableHooks()
	install.WaitStrategy = waitStrategy(what.Options)
	install.WaitForJobs = what.Options.GetWaitForJobs()
	install.Timeout = r.operation.Timeout()
	install.RollbackOnFailure = what.Options.GetAtomic()
	install.SubNotes = what.Options.GetSubNotes()
	install.SkipSchemaValidation = what.Options.GetSkipSchemaValidation()
	install.Description = what.Options.GetDescription()
	// Not the operation's context: Helm would answer at its end and go on in the background.
	_, err := install.RunWithContext(context.Background(), what.Chart.Clone(), what.Values)
	return err
}

func (r *Release) upgrade(what Application, how method, labels map[string]string) error {
	upgrade := action.NewUpgrade(r.configuration())
	upgrade.Namespace = r.namespace
	upgrade.Labels = labels
	upgrade.SkipCRDs = true
	upgrade.DisableOpenAPIValidation = true
	upgrade.ServerSideApply = fmt.Sprint(how.serverSide)
	upgrade.ForceConflicts = how.forceConflicts
	upgrade.ForceReplace = how.forceReplace
	upgrade.TakeOwnership = what.Options.GetTakeOwnership()
	upgrade.DisableHooks = what.Options.GetDisableHooks()
	upgrade.WaitStrategy = waitStrategy(what.Options)
	upgrade.WaitForJobs = what.Options.GetWaitForJobs()
	upgrade.Timeout = r.operation.Timeout()
	upgrade.RollbackOnFailure = what.Options.GetAtomic()
	upgrade.CleanupOnFail = what.Options.GetCleanupOnFail()
	upgrade.MaxHistory = int(what.Options.GetMaxHistory())
	upgrade.SubNotes = what.Options.GetSubNotes()
	upgrade.SkipSchemaValidation = what.Options.GetSkipSchemaValidation()
	upgrade.Description = what.Options.GetDescription()
	switch what.Options.GetValuesReuse() {
	case toolv1.ValuesReuse_VALUES_REUSE_REUSE:
		upgrade.ReuseValues = true
	case toolv1.ValuesReuse_VALUES_REUSE_RESET_THEN_REUSE:
		upgrade.ResetThenReuseValues = true
	default:
		// Left alone, Helm takes the old values when no new ones are given.
		upgrade.ResetValues = true
	}
	_, err := upgrade.RunWithContext(context.Background(), r.name, what.Chart.Clone(), what.Values)
	return err
}

func waitStrategy(options *toolv1.ApplyOptions) kube.WaitStrategy {
	if options.GetWait() {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

// course is what Apply does about what it found.
type course struct {
	upgrade bool
	// unlock marks the pending last revision as failed.
	unlock bool
	// finishRemoval ends an uninstall that was cut off.
	finishRemoval bool
}

// plan compares what the caller saw with what is there.
func (r *Release) plan(what Application, last *rspb.Release) (course, error) {
	installing := what.Action == toolv1.ApplyAction_APPLY_ACTION_INSTALL
	if !installing && what.Action != toolv1.ApplyAction_APPLY_ACTION_UPGRADE {
		return course{}, failure.New(failure.Internal, "the request says neither install nor upgrade")
	}
	if last == nil {
		if installing {
			return course{}, nil
		}
		return course{}, failure.New(failure.Conflict, "there is no release %s/%s to upgrade", r.namespace, r.name)
	}
	switch status := last.Info.Status; {
	case status.IsPending() && what.Recover:
		return course{upgrade: true, unlock: true}, nil
	case status.IsPending():
		return course{}, failure.New(failure.Conflict,
			"revision %d of the release is %s: another operation is running, or was cut off", last.Version, status)
	case status == rcommon.StatusUninstalling && what.Recover:
		return course{finishRemoval: true}, nil
	case status == rcommon.StatusUninstalling:
		return course{}, failure.New(failure.Conflict,
			"revision %d of the release is being uninstalled, or its uninstall was cut off", last.Version)
	case status == rcommon.StatusUninstalled && installing:
		return course{}, nil
	case status == rcommon.StatusUninstalled:
		return course{}, failure.New(failure.Conflict, "the release %s/%s has been uninstalled", r.namespace, r.name)
	case installing:
		return course{}, failure.New(failure.Conflict,
			"the release %s/%s exists: revision %d is %s", r.namespace, r.name, last.Version, status)
	default:
		return course{upgrade: true}, nil
	}
}

// interrupted is the description of a revision whose operation died.
const interrupted = "Operation was interrupted"

// recover leaves a release from which Helm can go on, and returns its last revision.
func (r *Release) recover(next course, last *rspb.Release) (*rspb.Release, error) {
	switch {
	case next.unlock:
		last.SetStatus(rcommon.StatusFailed, interrupted)
		if err := r.configuration().Releases.Update(last); err != nil {
			return nil, err
		}
		return last, nil
	case next.finishRemoval:
		r.operation.Step(toolv1.StepKind_STEP_KIND_REMOVING, "finishing an uninstall that was cut off")
		if _, err := r.Remove(&toolv1.RemoveOptions{}); err != nil {
			return nil, err
		}
		return nil, nil
	}
	return last, nil
}

// chartFor gives the chart as Helm would see it with these values: without the subcharts that they switch off.
func chartFor(what Application) (*helmchart.Chart, error) {
	own := what.Chart.Clone()
	if err := chartutil.ProcessDependencies(own, what.Values); err != nil {
		return nil, &failure.Render{Err: err}
	}
	return own, nil
}
