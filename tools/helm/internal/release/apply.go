package release

import (
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/postrenderer"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/bundle"
	"chandler.dev/tools/helm/internal/chart"
	"chandler.dev/tools/helm/internal/failure"
)

// ApplySpec is the input of Apply.
type ApplySpec struct {
	// Chart is the chart of the release. That of a bundle has no templates.
	Chart *chart.Chart
	// Bundle is set if the objects of the release are those of a bundle.
	Bundle      *bundle.Bundle
	Values      map[string]any
	Action      toolv1.ApplyAction
	Options     *toolv1.ApplyOptions
	InputDigest string
	Recover     bool

	// rendered are the objects of the bundle for the next revision.
	rendered *renderedBundle
	// checking, if set, checks the rendered objects of a chart.
	checking *checkingRenderer
}

// ApplyResult is the result of Apply.
type ApplyResult struct {
	State *toolv1.ReleaseState
	// Unchanged is set if the newest revision was deployed with the same input digest before, so that Apply changed
	// nothing.
	Unchanged bool
	// IgnoredFields are the fields that were left to other field managers.
	IgnoredFields []string
}

// Apply installs or upgrades the release, unless its newest revision is deployed with the same input digest.
func (r *Release) Apply(spec ApplySpec) (ApplyResult, error) {
	if err := spec.Chart.CheckInstallable(); err != nil {
		return ApplyResult{}, err
	}
	if err := r.client.rules.checkNamespace(r.namespace); err != nil {
		return ApplyResult{}, err
	}
	if err := r.prepare(spec.Chart); err != nil {
		return ApplyResult{}, err
	}
	last, err := r.fetchLast()
	if err != nil {
		return ApplyResult{}, err
	}
	plan, err := r.plan(spec, last)
	if err != nil {
		return ApplyResult{}, err
	}
	var state *toolv1.ReleaseState
	if plan.unchanged {
		r.operation.Log.Info("the newest revision is deployed with these inputs, nothing is changed", "revision", last.Version)
		state, err = newState(last, r.session)
	} else {
		state, err = r.execute(spec, plan, last)
	}
	return ApplyResult{State: state, Unchanged: plan.unchanged, IgnoredFields: r.client.ignoredFields()}, err
}

// execute creates the next revision.
func (r *Release) execute(spec ApplySpec, plan applyPlan, last *rspb.Release) (*toolv1.ReleaseState, error) {
	last, err := r.recover(plan, last)
	if err != nil {
		return nil, err
	}
	revision := 1
	if last != nil {
		revision = last.Version + 1
	}
	if spec.Bundle != nil {
		if spec.rendered, err = r.renderBundle(spec, revision, plan.upgrade); err != nil {
			return nil, err
		}
		if err := r.checkBundle(spec.rendered); err != nil {
			return nil, err
		}
	}
	method, err := r.applyMethod(spec.Options, plan.upgrade, last)
	if err != nil {
		return nil, err
	}
	labels, err := inputLabels(spec.InputDigest, revision)
	if err != nil {
		return nil, err
	}
	removable, err := r.removableCRDs(spec, plan, last)
	if err != nil {
		return nil, err
	}
	switch {
	case spec.rendered != nil:
		err = r.prepareBundle(spec, method, removable)
	case len(r.client.rules) > 0:
		err = r.checkFirst(&spec)
	default:
		err = r.applyCRDs(spec, func() error { return r.checkNextRecord(spec, plan.upgrade) })
	}
	if err != nil {
		return nil, err
	}
	r.client.ignoreConflicts.Store(method.ignoreConflicts)
	if spec.rendered == nil {
		r.client.checkManifest = func(manifest []byte) error { return r.checkManifest(spec, manifest) }
		r.client.checkRendered = func(rendered kube.ResourceList) error {
			if err := r.checkRemovedCRDs(removable, crdNames(rendered)); err != nil {
				return err
			}
			return r.client.checkCRDs(rendered, spec.Options.GetReplaceUnsafeCrds())
		}
	}
	if plan.upgrade {
		if _, copied := last.Labels[rolledBackLabel]; copied {
			labels[rolledBackLabel] = "null"
		}
		r.client.startAction(verbUpgrade)
		err = r.upgrade(spec, method, labels)
	} else {
		r.client.startAction(verbInstall)
		err = r.install(spec, method, labels, last != nil)
	}
	if err != nil {
		return nil, r.client.wrapError(err)
	}
	if err := r.records.writeError(); err != nil {
		return nil, err
	}
	return r.state()
}

// prepare fetches the cluster's APIs if needed and checks the chart's kubeVersion.
func (r *Release) prepare(chart *chart.Chart) error {
	constraint := chart.KubeVersion()
	var err error
	if chart.ReadsCapabilities || constraint != "" {
		err = r.session.EnsureCapabilities(capabilitiesMaxAge)
	} else {
		err = r.session.EnsureDiscovery(discoveryMaxAge)
	}
	if err != nil {
		return err
	}
	kubernetes := r.session.Capabilities().KubeVersion
	if constraint != "" && !chartutil.IsCompatibleRange(constraint, kubernetes.String()) {
		return failure.New(failure.InvalidPackage,
			"the package requires Kubernetes %s, but the cluster runs %s", constraint, kubernetes.Version)
	}
	return nil
}

// install installs the release. It creates the namespace only if no operation has succeeded in it before, or if it was
// deleted since.
func (r *Release) install(spec ApplySpec, method applyMethod, labels map[string]string, replace bool) error {
	create := spec.Options.GetCreateNamespace()
	seen := false
	if create {
		var err error
		if seen, err = r.hasNamespace(); err != nil {
			return err
		}
	}
	err := r.installInto(create && !seen, spec, method, labels, replace)
	if create && seen && apierrors.IsNotFound(err) {
		err = r.installInto(true, spec, method, labels, replace)
	}
	r.session.UpdateNamespaceCache(r.namespace, err == nil)
	return err
}

func (r *Release) installInto(
	createNamespace bool, spec ApplySpec, method applyMethod, labels map[string]string, replace bool,
) error {
	config := r.configuration()
	config.Releases.MaxHistory = int(spec.Options.GetMaxHistory())
	install := r.newInstall(config, spec)
	install.CreateNamespace = createNamespace
	install.Replace = replace
	install.Labels = labels
	install.ServerSideApply = method.serverSide
	install.ForceConflicts = method.forceConflicts
	install.ForceReplace = method.forceReplace
	// With the operation's context, Helm would return on cancellation and continue in the background.
	_, err := install.RunWithContext(context.Background(), spec.Chart.Clone(), spec.Values)
	return err
}

// newInstall returns an install with the options that do not depend on how objects are applied.
func (r *Release) newInstall(config *action.Configuration, spec ApplySpec) *action.Install {
	install := action.NewInstall(config)
	install.ReleaseName = r.name
	install.Namespace = r.namespace
	install.SkipCRDs = true // applyCRDs has created them.
	install.DisableOpenAPIValidation = true
	install.TakeOwnership = spec.Options.GetTakeOwnership()
	install.DisableHooks = spec.Options.GetDisableHooks()
	install.WaitStrategy = waitStrategy(spec.Options)
	install.WaitForJobs = spec.Options.GetWaitForJobs()
	install.Timeout = r.operation.Timeout()
	install.RollbackOnFailure = spec.Options.GetAtomic()
	install.SubNotes = spec.Options.GetSubNotes()
	install.SkipSchemaValidation = spec.Options.GetSkipSchemaValidation()
	install.Description = spec.Options.GetDescription()
	install.PostRenderer = spec.postRenderer()
	return install
}

func (r *Release) upgrade(spec ApplySpec, method applyMethod, labels map[string]string) error {
	upgrade := r.newUpgrade(r.configuration(), spec)
	upgrade.Labels = labels
	upgrade.ServerSideApply = fmt.Sprint(method.serverSide)
	upgrade.ForceConflicts = method.forceConflicts
	upgrade.ForceReplace = method.forceReplace
	_, err := upgrade.RunWithContext(context.Background(), r.name, spec.Chart.Clone(), spec.Values)
	return err
}

// newUpgrade returns an upgrade with the options that do not depend on how objects are applied.
func (r *Release) newUpgrade(config *action.Configuration, spec ApplySpec) *action.Upgrade {
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace = r.namespace
	upgrade.SkipCRDs = true
	upgrade.DisableOpenAPIValidation = true
	upgrade.TakeOwnership = spec.Options.GetTakeOwnership()
	upgrade.DisableHooks = spec.Options.GetDisableHooks()
	upgrade.WaitStrategy = waitStrategy(spec.Options)
	upgrade.WaitForJobs = spec.Options.GetWaitForJobs()
	upgrade.Timeout = r.operation.Timeout()
	upgrade.RollbackOnFailure = spec.Options.GetAtomic()
	upgrade.CleanupOnFail = spec.Options.GetCleanupOnFail()
	upgrade.MaxHistory = int(spec.Options.GetMaxHistory())
	upgrade.SubNotes = spec.Options.GetSubNotes()
	upgrade.SkipSchemaValidation = spec.Options.GetSkipSchemaValidation()
	upgrade.Description = spec.Options.GetDescription()
	upgrade.PostRenderer = spec.postRenderer()
	switch spec.Options.GetValuesReuse() {
	case toolv1.ValuesReuse_VALUES_REUSE_REUSE:
		upgrade.ReuseValues = true
	case toolv1.ValuesReuse_VALUES_REUSE_RESET_THEN_REUSE:
		upgrade.ResetThenReuseValues = true
	default:
		// Without it, Helm reuses the old values if no new values are given.
		upgrade.ResetValues = true
	}
	return upgrade
}

// postRenderer returns what Helm gets the objects from, or who checks them. Helm has neither for other charts.
func (s ApplySpec) postRenderer() postrenderer.PostRenderer {
	switch {
	case s.rendered != nil:
		return s.rendered
	case s.checking != nil:
		return s.checking
	}
	return nil
}

func waitStrategy(options *toolv1.ApplyOptions) kube.WaitStrategy {
	if options.GetWait() {
		return kube.StatusWatcherStrategy
	}
	return kube.HookOnlyStrategy
}

// applyPlan is how Apply handles the current state of the release.
type applyPlan struct {
	// unchanged is set if the last revision is deployed with the requested inputs.
	unchanged bool
	upgrade   bool
	// unlock is set if the pending last revision must be marked as failed.
	unlock bool
	// finishUninstall is set if an interrupted uninstall must be finished.
	finishUninstall bool
	// disableHooks is set if hooks do not run when the uninstall is finished.
	disableHooks bool
}

// plan checks the requested action against the last revision.
func (r *Release) plan(spec ApplySpec, last *rspb.Release) (applyPlan, error) {
	installing := spec.Action == toolv1.ApplyAction_APPLY_ACTION_INSTALL
	if !installing && spec.Action != toolv1.ApplyAction_APPLY_ACTION_UPGRADE {
		return applyPlan{}, failure.New(failure.Internal, "the request's action is neither install nor upgrade")
	}
	if last == nil {
		if installing {
			return applyPlan{}, nil
		}
		return applyPlan{}, failure.New(failure.Conflict, "the release %s/%s does not exist", r.namespace, r.name)
	}
	switch status := last.Info.Status; {
	case status == rcommon.StatusDeployed && spec.InputDigest != "" &&
		spec.InputDigest == inputDigest(last.Labels, last.Version):
		return applyPlan{unchanged: true}, nil
	case status.IsPending() && spec.Recover:
		return applyPlan{upgrade: true, unlock: true}, nil
	case status.IsPending():
		return applyPlan{}, failure.New(failure.Conflict,
			"revision %d of the release is %s: another operation is running or was interrupted", last.Version, status)
	case status == rcommon.StatusUninstalling && spec.Recover:
		return applyPlan{finishUninstall: true, disableHooks: spec.Options.GetDisableHooks()}, nil
	case status == rcommon.StatusUninstalling:
		return applyPlan{}, failure.New(failure.Conflict,
			"revision %d of the release is being uninstalled, or its uninstall was interrupted", last.Version)
	case status == rcommon.StatusUninstalled && installing:
		return applyPlan{}, nil
	case status == rcommon.StatusUninstalled:
		return applyPlan{}, failure.New(failure.Conflict, "the release %s/%s has been uninstalled", r.namespace, r.name)
	case installing:
		return applyPlan{}, failure.New(failure.Conflict,
			"the release %s/%s already exists: revision %d is %s", r.namespace, r.name, last.Version, status)
	default:
		return applyPlan{upgrade: true}, nil
	}
}

// interrupted is the description of a revision whose operation was interrupted.
const interrupted = "Operation was interrupted"

// recover resolves an interrupted operation, so that Helm can continue, and returns the last revision.
func (r *Release) recover(plan applyPlan, last *rspb.Release) (*rspb.Release, error) {
	switch {
	case plan.unlock:
		last.SetStatus(rcommon.StatusFailed, interrupted)
		if err := r.configuration().Releases.Update(last); err != nil {
			return nil, err
		}
		return last, nil
	case plan.finishUninstall:
		r.operation.Step(toolv1.StepKind_STEP_KIND_REMOVING, "finishing an interrupted uninstall")
		if _, err := r.Remove(&toolv1.RemoveOptions{DisableHooks: plan.disableHooks}); err != nil {
			return nil, err
		}
		return nil, nil
	}
	return last, nil
}

// enabledChart returns the chart without the subcharts that the values disable.
func enabledChart(spec ApplySpec) (*helmchart.Chart, error) {
	enabled := spec.Chart.Clone()
	if err := chartutil.ProcessDependencies(enabled, spec.Values); err != nil {
		return nil, &failure.RenderError{Err: err}
	}
	return enabled, nil
}
