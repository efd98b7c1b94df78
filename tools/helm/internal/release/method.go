package release

import (
	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// method is how objects are applied.
type method struct {
	serverSide     bool
	forceConflicts bool
	forceReplace   bool
}

// method decides how to apply, and prepares the objects for it.
func (r *Release) method(options *toolv1.ApplyOptions, upgrade bool, last *rspb.Release) (method, error) {
	how, err := methodOf(options, wantsServerSide(options, upgrade, last))
	if err != nil || !how.serverSide || !upgrade {
		return how, err
	}
	changed, err := r.changeOver(last)
	if err != nil {
		if !mayStayClientSide(options, err) {
			return method{}, err
		}
		r.operation.Log.Info("the release stays client-side: the API server does not apply one of its objects server-side")
		return methodOf(options, false)
	}
	// Client-side apply wins over everyone, and so does the upgrade that takes its place.
	how.forceConflicts = how.forceConflicts || changed
	return how, nil
}

func wantsServerSide(options *toolv1.ApplyOptions, upgrade bool, last *rspb.Release) bool {
	switch options.GetMethod() {
	case toolv1.ApplyMethod_APPLY_METHOD_SERVER_SIDE, toolv1.ApplyMethod_APPLY_METHOD_PREFER_SERVER_SIDE:
		return true
	case toolv1.ApplyMethod_APPLY_METHOD_CLIENT_SIDE:
		return false
	default:
		return !upgrade || isServerSide(last)
	}
}

func mayStayClientSide(options *toolv1.ApplyOptions, err error) bool {
	return options.GetMethod() == toolv1.ApplyMethod_APPLY_METHOD_PREFER_SERVER_SIDE &&
		failure.Classify(err).Category == failure.Rejected
}

// methodOf checks what goes with the method.
func methodOf(options *toolv1.ApplyOptions, serverSide bool) (method, error) {
	if options.GetForceConflicts() && !serverSide {
		return method{}, failure.New(failure.InvalidValues,
			"forceConflicts needs server-side apply, and this release is applied client-side")
	}
	if options.GetForceReplace() && serverSide {
		return method{}, failure.New(failure.InvalidValues,
			"forceReplace needs client-side apply, and this release is applied server-side")
	}
	return method{
		serverSide:     serverSide,
		forceConflicts: serverSide && (options.GetForceConflicts() || options.GetForce()),
		forceReplace:   !serverSide && (options.GetForceReplace() || options.GetForce()),
	}, nil
}
