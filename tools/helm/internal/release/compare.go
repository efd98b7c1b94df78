package release

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/redact"
)

// CompareSpec is the input of Compare.
type CompareSpec struct {
	// Revision is the newest revision.
	Revision int
	// Objects are the objects to compare. Empty means all of the revision.
	Objects []*toolv1.ObjectRef
	// Correct applies the objects that are missing or differ.
	Correct        bool
	Ignore         []*toolv1.IgnoreRule
	FieldConflicts toolv1.FieldConflicts
}

// Short names of the outcomes of a comparison.
const (
	inSync    = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_IN_SYNC
	drifted   = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_DRIFTED
	missing   = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_MISSING
	corrected = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_CORRECTED
	unknown   = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_UNKNOWN
	ignored   = toolv1.ComparisonOutcome_COMPARISON_OUTCOME_IGNORED
)

// compareWorkers is the number of objects that are compared at the same time.
const compareWorkers = 4

// Compare compares the objects on the cluster with those of the newest revision, and corrects them if requested. It changes no
// record.
func (r *Release) Compare(spec CompareSpec) ([]*toolv1.ObjectComparison, error) {
	if err := checkPointers(spec.Ignore); err != nil {
		return nil, err
	}
	if err := r.session.EnsureDiscovery(discoveryMaxAge); err != nil {
		return nil, err
	}
	last, err := r.deployed(spec.Revision)
	if err != nil {
		return nil, err
	}
	resources, err := r.client.Client.Build(strings.NewReader(last.Manifest), false)
	if err := withoutNoMatch(err); err != nil {
		return nil, &failure.BuildError{Err: flattenAggregate(err)}
	}
	ignoresConflicts := spec.FieldConflicts == toolv1.FieldConflicts_FIELD_CONFLICTS_IGNORE_FIELDS
	r.client.ignoreConflicts.Store(ignoresConflicts)
	comparer := &comparer{
		release:  r,
		spec:     spec,
		force:    !ignoresConflicts,
		secrets:  redact.Strings(last.Config),
		objects:  byRef(resources),
		recorded: map[objectKey]bool{},
	}
	refs := inventory(last.Manifest, last.Namespace, r.session)
	for _, ref := range refs {
		comparer.recorded[keyOf(ref)] = true
	}
	if len(spec.Objects) > 0 {
		refs = spec.Objects
	}
	r.operation.Step(toolv1.StepKind_STEP_KIND_COMPARING, "comparing "+countObjects(len(refs)))
	return comparer.compareAll(refs)
}

// deployed returns the newest revision, which must be deployed and have this number.
func (r *Release) deployed(revision int) (*rspb.Release, error) {
	last, err := r.fetchLast()
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, failure.New(failure.Conflict, "the release %s/%s does not exist", r.namespace, r.name)
	case last.Version != revision:
		return nil, failure.New(failure.Conflict, "the newest revision of the release is %d and not %d", last.Version, revision)
	case last.Info.Status != rcommon.StatusDeployed:
		return nil, failure.New(failure.Conflict, "revision %d of the release is %s and not deployed", revision, last.Info.Status)
	}
	return last, nil
}

// objectKey identifies an object of a release.
type objectKey struct{ apiVersion, kind, namespace, name string }

func keyOf(ref *toolv1.ObjectRef) objectKey {
	return objectKey{ref.GetApiVersion(), ref.GetKind(), ref.GetNamespace(), ref.GetName()}
}

func byRef(resources kube.ResourceList) map[objectKey]*resource.Info {
	objects := make(map[objectKey]*resource.Info, len(resources))
	for _, info := range resources {
		objects[keyOf(objectRef(info))] = info
	}
	return objects
}

// comparer compares the objects of one revision.
type comparer struct {
	release *Release
	spec    CompareSpec
	// force compares fields of other field managers as well.
	force bool
	// secrets are the strings in the values, which are redacted in reasons.
	secrets []string
	// objects are the objects of the revision whose kinds the cluster serves.
	objects map[objectKey]*resource.Info
	// recorded are all objects of the revision.
	recorded map[objectKey]bool
}

// compareAll compares objects and returns the results in the same order. It fails if the cluster does not answer.
func (c *comparer) compareAll(refs []*toolv1.ObjectRef) ([]*toolv1.ObjectComparison, error) {
	results := make([]*toolv1.ObjectComparison, len(refs))
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		once    sync.Once
		failed  atomic.Bool
		cause   error
	)
	for range min(compareWorkers, len(refs)) {
		workers.Go(func() {
			for !failed.Load() {
				at := int(next.Add(1)) - 1
				if at >= len(refs) {
					return
				}
				result, err := c.compareRef(refs[at])
				if err != nil {
					once.Do(func() { cause = fmt.Errorf("comparing %s %s: %w", refs[at].GetKind(), refs[at].GetName(), err) })
					failed.Store(true)
					return
				}
				result.Object, results[at] = refs[at], result
			}
		})
	}
	workers.Wait()
	if cause != nil {
		return nil, cause
	}
	return results, nil
}

// compareRef compares one object.
func (c *comparer) compareRef(ref *toolv1.ObjectRef) (*toolv1.ObjectComparison, error) {
	key := keyOf(ref)
	inNamespace := key
	inNamespace.namespace = c.release.namespace
	for _, key := range []objectKey{key, inNamespace} {
		if info, found := c.objects[key]; found {
			return c.compareObject(info)
		}
	}
	if c.recorded[key] {
		// Discovery may be incomplete, so the object may exist.
		return result(unknown, "the cluster does not serve "+ref.GetApiVersion()+" "+ref.GetKind()), nil
	}
	return result(unknown, fmt.Sprintf("revision %d of the release does not have this object", c.spec.Revision)), nil
}

func result(outcome toolv1.ComparisonOutcome, reason string, paths ...string) *toolv1.ObjectComparison {
	return &toolv1.ObjectComparison{Outcome: outcome, Reason: reason, Paths: paths}
}
