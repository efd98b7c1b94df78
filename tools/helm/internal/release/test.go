package release

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/yaml"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/redact"
)

// TestSpec is the input of Test.
type TestSpec struct {
	// Revision is the newest revision.
	Revision int
	// Logs returns the end of the logs of failed tests.
	Logs bool
}

// Test runs the test hooks of the newest revision. A failed test is a result and no error.
func (r *Release) Test(spec TestSpec) ([]*toolv1.TestResult, error) {
	if err := r.session.EnsureDiscovery(discoveryMaxAge); err != nil {
		return nil, err
	}
	last, err := r.deployed(spec.Revision)
	if err != nil || len(testHooks(last.Hooks)) == 0 {
		return nil, err
	}
	isTest := func(hook *rspb.Hook) bool { return slices.Contains(hook.Events, rspb.HookTest) }
	if err := r.checkHooks(last, isTest); err != nil {
		return nil, err
	}
	secrets := append(redact.Strings(last.Config), releaseSecrets(last)...)
	r.client.startAction(verbTest)
	testing := action.NewReleaseTesting(r.configuration())
	testing.Timeout = r.operation.Timeout()
	testing.Namespace = r.namespace
	started := time.Now()
	run, shutdown, testErr := testing.Run(r.name)
	// Helm deletes the hooks by their policies only then: their logs are gone with them.
	defer r.finishTests(shutdown)
	if testErr != nil && (!isTestFailure(testErr) || r.operation.Context().Err() != nil) {
		return nil, testErr
	}
	tested, ok := run.(*rspb.Release)
	if !ok {
		return nil, failure.New(failure.Internal, "the Helm SDK returned %T for the tested release", run)
	}
	results, failed := r.testResults(testHooks(tested.Hooks), started, testErr, secrets)
	if failed != nil && spec.Logs {
		r.addLog(results[len(results)-1], failed, secrets)
	}
	return results, nil
}

func (r *Release) finishTests(shutdown action.ExecuteShutdownFunc) {
	if shutdown == nil {
		return
	}
	if err := shutdown(); err != nil {
		r.operation.Log.Warn("the objects of the tests could not be deleted", "error", failure.Proto(err).GetMessage())
	}
}

// testHooks returns the tests in the order in which Helm runs them (hookByWeight in its package action).
func testHooks(hooks []*rspb.Hook) []*rspb.Hook {
	var tests []*rspb.Hook
	for _, hook := range hooks {
		if slices.Contains(hook.Events, rspb.HookTest) {
			tests = append(tests, hook)
		}
	}
	slices.SortStableFunc(tests, func(a, b *rspb.Hook) int {
		return cmp.Or(cmp.Compare(a.Weight, b.Weight), cmp.Compare(a.Name, b.Name))
	})
	return tests
}

// isTestFailure reports whether an error says something about a test. Otherwise, the test may not have run.
func isTestFailure(err error) bool {
	switch failure.Classify(err).Category {
	case failure.HookFailed, failure.NotReady, failure.Rejected, failure.Forbidden, failure.InvalidPackage:
		return true
	}
	return false
}

// testResults returns the results of the tests that have run since a time, and the test that failed, which is the last one.
func (r *Release) testResults(
	tests []*rspb.Hook, started time.Time, testErr error, secrets []string,
) (results []*toolv1.TestResult, failed *rspb.Hook) {
	for _, test := range tests {
		hasRun := !test.LastRun.StartedAt.Before(started)
		if hasRun && test.LastRun.Phase == rspb.HookPhaseSucceeded {
			// Other hooks, such as ConfigMaps, only serve the tests.
			if test.Kind == "Pod" || test.Kind == "Job" {
				results = append(results, &toolv1.TestResult{Name: r.testName(test), Passed: true})
			}
			continue
		}
		if testErr != nil {
			message := failure.Proto(testCause(testErr), secrets...).GetMessage()
			return append(results, &toolv1.TestResult{Name: r.testName(test), Message: message}), test
		}
	}
	return results, nil
}

// testCause returns why a test failed, without its name, which the result has.
func testCause(err error) error {
	if hook, ok := errors.AsType[*failure.HookError](err); ok {
		_, reason, _ := strings.Cut(failure.Classify(hook).Message, "hook "+hook.Name+" failed: ")
		return failure.Wrap(failure.HookFailed, err, "%s", cmp.Or(reason, "it failed"))
	}
	return err
}

// testName returns the display name of a test, such as "Pod shop/web-test".
func (r *Release) testName(test *rspb.Hook) string {
	ref := r.testRef(test)
	if ref.GetNamespace() == "" {
		return ref.GetKind() + " " + ref.GetName()
	}
	return ref.GetKind() + " " + ref.GetNamespace() + "/" + ref.GetName()
}

func (r *Release) testRef(test *rspb.Hook) *toolv1.ObjectRef {
	var object manifestObject
	if err := yaml.Unmarshal([]byte(test.Manifest), &object); err != nil || object.Kind == "" {
		return &toolv1.ObjectRef{Kind: test.Kind, Name: test.Name, Namespace: r.namespace}
	}
	return newObjectRef(object, r.namespace, r.session)
}
