package release

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// Helm's rollback deletes all objects of the newest revision that the restored one does not have. That is too much if the
// revision has failed before it created them, or if they are CRDs; and too little if the newest revision is that of a failed
// rollback, which has the objects of the restored revision.

// updateForRollback restores objects. It fails if an object could not be read: Helm would leave it behind and report success.
func (c *client) updateForRollback(original, target kube.ResourceList, options []kube.ClientUpdateOption) (*kube.Result, error) {
	target, err := c.withoutUnsafeCRDs(target)
	if err != nil {
		return &kube.Result{}, err
	}
	original, err = c.deletable(withLeftovers(original, c.leftovers.Difference(target)), target)
	if err != nil {
		return &kube.Result{}, err
	}
	c.operation.Transport.ForgetFailedReads()
	result, err := c.update(original, target, options)
	if err != nil {
		return result, err
	}
	return result, c.operation.Transport.FailedRead()
}

// withoutUnsafeCRDs returns the objects without the CRDs that a rollback must not replace. The newer CRDs stay on the cluster:
// older objects are valid in them.
func (c *client) withoutUnsafeCRDs(target kube.ResourceList) (kube.ResourceList, error) {
	var restored kube.ResourceList
	for _, info := range target {
		live, older, err := liveCRD(info)
		if err != nil {
			return nil, err
		}
		if err := checkReplaceable(live, older, false, nil); err != nil {
			c.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, "leaving CustomResourceDefinition "+info.Name+" unchanged",
				objectRef(info))
			continue
		}
		restored.Append(info)
	}
	return restored, nil
}

// withLeftovers returns the objects of the newest revision and those of earlier ones that it does not have.
func withLeftovers(original, leftovers kube.ResourceList) kube.ResourceList {
	all := append(kube.ResourceList{}, original...)
	for _, info := range leftovers {
		if !all.Contains(info) {
			all.Append(info)
		}
	}
	return all
}

// deletable returns the objects without those that are not in the restored revision and must not be deleted: CRDs, because all
// objects of their kinds would be deleted with them, and objects that do not belong to the release.
func (c *client) deletable(original, target kube.ResourceList) (kube.ResourceList, error) {
	var kept kube.ResourceList
	for _, info := range original {
		if !target.Contains(info) {
			mayDelete, err := c.mayDelete(info)
			if err != nil {
				return nil, err
			}
			if !mayDelete {
				continue
			}
		}
		kept.Append(info)
	}
	return kept, nil
}

// mayDelete reports whether a rollback may delete an object that the restored revision does not have.
func (c *client) mayDelete(info *resource.Info) (bool, error) {
	if info.Name == "" {
		return false, nil
	}
	kind := info.Mapping.GroupVersionKind
	if kind.GroupKind() == crdKind {
		c.operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, "keeping CustomResourceDefinition "+info.Name, objectRef(info))
		return false, nil
	}
	live, err := getLive(info)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", kind.Kind, info.Name, err)
	}
	if live == nil {
		return false, nil
	}
	if !c.owns(live) {
		c.reportKept(info, "which does not belong to the release")
		return false, nil
	}
	return true, nil
}

// findLeftovers returns the objects of the revisions before the newest, up to the last one that was deployed. The revisions are
// sorted newest first.
func (r *Release) findLeftovers(revisions []*rspb.Release) (kube.ResourceList, error) {
	var leftovers kube.ResourceList
	for _, revision := range mayHaveLeftovers(revisions) {
		resources, err := r.client.Client.Build(strings.NewReader(revision.Manifest), false)
		if err := withoutNoMatch(err); err != nil {
			return nil, &failure.BuildError{Err: flattenAggregate(err)}
		}
		leftovers = withLeftovers(leftovers, resources)
	}
	return leftovers, nil
}

// mayHaveLeftovers returns the revisions before the newest, up to the last one that was deployed: later ones have failed, and have
// deleted nothing.
func mayHaveLeftovers(revisions []*rspb.Release) []*rspb.Release {
	if isComplete(revisions[0]) {
		return nil
	}
	earlier := revisions[1:]
	if at := slices.IndexFunc(earlier, isComplete); at >= 0 {
		return earlier[:at+1]
	}
	return earlier
}

// withoutNoMatch returns the error without those for kinds that the cluster does not serve: there are no objects of them.
func withoutNoMatch(err error) error {
	return utilerrors.FilterOut(err, func(err error) bool {
		_, isNoMatch := errors.AsType[*meta.NoKindMatchError](err)
		return isNoMatch
	})
}
