package release

import (
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// Remove uninstalls the release. It returns the state if the history is kept, and nil otherwise.
func (r *Release) Remove(options *toolv1.RemoveOptions) (*toolv1.ReleaseState, error) {
	last, err := r.fetchLast()
	if err != nil || last == nil {
		return nil, err
	}
	if last.Info.Status == rcommon.StatusUninstalled && options.GetKeepHistory() {
		return newState(last, r.session)
	}
	if err := r.session.EnsureDiscovery(discoveryMaxAge); err != nil {
		return nil, err
	}
	if !options.GetDisableHooks() {
		if err := r.checkHooks(last, runsOnRemoval); err != nil {
			return nil, err
		}
	}
	r.client.startAction(verbDelete)
	r.setRemoved(last)
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

	// Helm skips objects whose owner it cannot read, and then deletes the release: a network error or a missing
	// permission would leave the object behind. So the release is kept until all reads have succeeded, and the next
	// Remove finishes the uninstall.
	r.records.finishCheck = r.operation.Transport.FailedRead
	defer func() { r.records.finishCheck = nil }()
	if _, err := uninstall.Run(r.name); err != nil {
		return r.client.wrapError(err)
	}
	if err := r.operation.Transport.FailedRead(); err != nil {
		return err
	}
	return r.records.writeError()
}
