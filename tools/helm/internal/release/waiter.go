package release

import (
	"time"

	"helm.sh/helm/v4/pkg/kube"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// statusWorkers is the number of workers that compute the status of watched objects. Without workers, one slow list
// blocks all events.
const statusWorkers = 2

func (c *client) GetWaiter(strategy kube.WaitStrategy) (kube.Waiter, error) {
	return c.GetWaiterWithOptions(strategy)
}

func (c *client) GetWaiterWithOptions(strategy kube.WaitStrategy, options ...kube.WaitOption) (kube.Waiter, error) {
	options = append(options, kube.WithWaitContext(c.operation.Context()), kube.WithStatusComputeWorkers(statusWorkers))
	inner, err := c.Client.GetWaiterWithOptions(strategy, options...)
	if err != nil {
		return nil, err
	}
	return &waiter{inner: inner, client: c, hooksOnly: strategy == kube.HookOnlyStrategy}, nil
}

// waiter wraps Helm's waiter. It reports what it waits for and uses the remaining time of the operation.
type waiter struct {
	inner     kube.Waiter
	client    *client
	hooksOnly bool
}

func (w *waiter) Wait(resources kube.ResourceList, _ time.Duration) error {
	return w.waitReady(resources, w.inner.Wait)
}

func (w *waiter) WaitWithJobs(resources kube.ResourceList, _ time.Duration) error {
	return w.waitReady(resources, w.inner.WaitWithJobs)
}

type waitFunc func(kube.ResourceList, time.Duration) error

func (w *waiter) waitReady(resources kube.ResourceList, wait waitFunc) error {
	if w.hooksOnly {
		return nil
	}
	resources = mayBeUnready(resources)
	if len(resources) == 0 {
		return nil
	}
	w.client.waitsFor(resources)
	operation := w.client.operation
	operation.Step(toolv1.StepKind_STEP_KIND_WAITING,
		"waiting for "+countObjects(len(resources))+" to be ready", objectRefs(resources)...)
	if err := wait(resources, operation.Remaining()); err != nil {
		return &failure.WaitError{For: "ready", After: operation.Timeout(), Err: err}
	}
	operation.Step(toolv1.StepKind_STEP_KIND_APPLYING, countObjects(len(resources))+" ready")
	return nil
}

func (w *waiter) WaitForDelete(resources kube.ResourceList, _ time.Duration) error {
	if w.hooksOnly || len(resources) == 0 {
		return nil
	}
	w.client.waitsFor(resources)
	operation := w.client.operation
	operation.Step(toolv1.StepKind_STEP_KIND_WAITING,
		"waiting for "+countObjects(len(resources))+" to be deleted", objectRefs(resources)...)
	if err := w.inner.WaitForDelete(resources, operation.Remaining()); err != nil {
		return &failure.WaitError{For: "deleted", After: operation.Timeout(), Err: err}
	}
	operation.Step(toolv1.StepKind_STEP_KIND_REMOVING, countObjects(len(resources))+" deleted")
	return nil
}

// WatchUntilReady waits for hooks.
func (w *waiter) WatchUntilReady(resources kube.ResourceList, _ time.Duration) error {
	if !hasJobOrPod(resources) {
		return nil
	}
	w.client.waitsFor(resources)
	operation := w.client.operation
	name := w.client.hookName(resources)
	operation.Step(toolv1.StepKind_STEP_KIND_WAITING, "waiting for hook "+name, objectRefs(resources)...)
	if err := w.inner.WatchUntilReady(resources, operation.Remaining()); err != nil {
		return &failure.HookError{Name: name, Err: err}
	}
	operation.Step(toolv1.StepKind_STEP_KIND_HOOK, "hook "+name+" succeeded")
	return nil
}
