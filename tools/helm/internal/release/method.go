package release

import (
	rspb "helm.sh/helm/v4/pkg/release/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// applyMethod is the method by which objects are applied.
type applyMethod struct {
	serverSide     bool
	forceConflicts bool
	forceReplace   bool
	// ignoreConflicts leaves fields of other field managers unchanged.
	ignoreConflicts bool
}

// applyMethod chooses the apply method and migrates the objects to server-side apply if needed.
func (r *Release) applyMethod(options *toolv1.ApplyOptions, upgrade bool, last *rspb.Release) (applyMethod, error) {
	method, err := newApplyMethod(options, useServerSide(options, upgrade, last))
	if err != nil || !method.serverSide || !upgrade {
		return method, err
	}
	migrated, err := r.migrateToServerSide(last)
	if err != nil {
		if !mayFallBack(options, err) {
			return applyMethod{}, err
		}
		r.operation.Log.Info("keeping client-side apply: the API server cannot apply one of the objects server-side")
		return newApplyMethod(options, false)
	}
	// Client-side apply overwrites fields of other managers, so the first server-side upgrade does the same.
	method.forceConflicts = method.forceConflicts || migrated && !method.ignoreConflicts
	return method, nil
}

func useServerSide(options *toolv1.ApplyOptions, upgrade bool, last *rspb.Release) bool {
	switch options.GetMethod() {
	case toolv1.ApplyMethod_APPLY_METHOD_SERVER_SIDE, toolv1.ApplyMethod_APPLY_METHOD_PREFER_SERVER_SIDE:
		return true
	case toolv1.ApplyMethod_APPLY_METHOD_CLIENT_SIDE:
		return false
	default:
		return !upgrade || isServerSide(last)
	}
}

func mayFallBack(options *toolv1.ApplyOptions, err error) bool {
	return options.GetMethod() == toolv1.ApplyMethod_APPLY_METHOD_PREFER_SERVER_SIDE &&
		failure.Classify(err).Category == failure.Rejected
}

// newApplyMethod checks that the force options match the method.
func newApplyMethod(options *toolv1.ApplyOptions, serverSide bool) (applyMethod, error) {
	if options.GetForceConflicts() && !serverSide {
		return applyMethod{}, failure.New(failure.InvalidValues,
			"forceConflicts requires server-side apply, but this release is applied client-side")
	}
	if options.GetForceReplace() && serverSide {
		return applyMethod{}, failure.New(failure.InvalidValues,
			"forceReplace requires client-side apply, but this release is applied server-side")
	}
	force := options.GetForceConflicts() || options.GetForce() ||
		options.GetFieldConflicts() == toolv1.FieldConflicts_FIELD_CONFLICTS_FORCE
	ignore := options.GetFieldConflicts() == toolv1.FieldConflicts_FIELD_CONFLICTS_IGNORE_FIELDS
	return applyMethod{
		serverSide:      serverSide,
		forceConflicts:  serverSide && force,
		forceReplace:    !serverSide && (options.GetForceReplace() || options.GetForce()),
		ignoreConflicts: serverSide && ignore && !force,
	}, nil
}
