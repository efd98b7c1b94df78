package release

import (
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// Remove uninstalls the release. Nil: nothing of it is left.
func (r *Release) Remove(options *toolv1.RemoveOptions) (*toolv1.ReleaseState, error) {
	last, err := r.fetched()
	if err != nil || last == nil {
		return nil, err
	}
	if last.Info.Status == rcommon.StatusUninstalled && options.GetKeepHistory() {
		return stateOf(last, r.session)
	}
	if err := r.session.Prepare(apisMaxAge); err != nil {
		return nil, err
	}
	r.client.begin(verbDelete)
	if err := r.uninstall(options); err != nil {
		return nil, err
	}
	if options.GetKeepHistory() {
		return r.state()
	}
	return nil, nil
}

func (r *Release) uninstall(options *toolv1.RemoveOptions) error {
	uninstall := action.NewUninstall(r.configuration())
	uninstall.KeepHistory = options.GetKeepHistory()
	uninstall.DisableHooks = options.GetDisableHooks()
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if options.GetWait() {
		uninstall.WaitStrategy = kube.StatusWatcherStrategy
	}
	uninstall.Timeout = r.operation.Timeout()
	uninstall.Description = options.GetDescription()

	// Helm leaves an object alone if it cannot find out whose it is, and then forgets the release: a moment without
	// network, or a missing permission, would leave the object behind for good. So the record stays until every
	// read has succeeded, and removing again finishes the work.
	r.records.refuse = r.operation.Guard.FailedRead
	defer func() { r.records.refuse = nil }()
	if _, err := uninstall.Run(r.name); err != nil {
		return r.client.typed(err)
	}
	if err := r.operation.Guard.FailedRead(); err != nil {
		return err
	}
	return r.records.written()
}
