package release

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/operation"
)

// FieldManager owns the fields that Helm applies. It is the helm CLI's own name, so that either can go on where the
// other left off.
const FieldManager = "helm"

// client is Helm's Kubernetes client with three differences: it tells the caller what it does, it never validates in
// the client (the server does), and it types what fails.
type client struct {
	*kube.Client
	operation *operation.Operation

	mu sync.Mutex
	// verb is the action that hooks belong to: install, upgrade, rollback or delete.
	verb string
	// actions counts the Helm actions begun: the second one is the way back after a failure.
	actions int
	// applied is set once the main objects have been sent: hooks after it are post hooks.
	applied bool
	// built is set once rendering is over.
	built bool
	// deletions are errors that Helm's uninstall reduces to a count.
	deletions []error
}

var (
	_ kube.Interface            = (*client)(nil)
	_ kube.InterfaceWaitOptions = (*client)(nil)
)

func newClient(session *cluster.Session, namespace string, op *operation.Operation) *client {
	inner := kube.New(session)
	inner.Namespace = namespace
	inner.SetLogger(logging.Quiet(op.Log.Handler()))
	return &client{Client: inner, operation: op}
}

// IsReachable is the first thing every Helm action asks. The answer is known: the release has just been read. What
// is news is that an action begins.
func (c *client) IsReachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.actions++
	// The way back takes one action or two: to find the last good revision, and to return to it.
	if c.actions == 2 {
		c.goBack()
	}
	return nil
}

func (c *client) goBack() {
	c.applied = false
	c.verb = map[string]string{verbInstall: verbDelete, verbUpgrade: verbRollback}[c.verb]
	c.operation.Renew()
	c.operation.Step(toolv1.StepKind_STEP_KIND_ROLLING_BACK, "going back after a failure")
}

// Build never validates, whatever Helm asks for: not for hooks and namespaces either.
func (c *client) Build(reader io.Reader, _ bool) (kube.ResourceList, error) {
	c.mu.Lock()
	c.built = true
	c.mu.Unlock()
	resources, err := c.Client.Build(reader, false)
	if err != nil {
		return resources, &failure.Build{Err: exposed(err)}
	}
	return resources, nil
}

// exposed shows the parts of an aggregate to errors.As, from which it hides them.
func exposed(err error) error {
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return errors.Join(aggregate.Errors()...)
	}
	return err
}

func (c *client) Create(resources kube.ResourceList, options ...kube.ClientCreateOption) (*kube.Result, error) {
	hook := c.hookName(resources)
	switch {
	case hook != "":
		c.operation.Step(toolv1.StepKind_STEP_KIND_HOOK, "hook "+hook, references(resources)...)
	case !isNamespace(resources):
		c.step(toolv1.StepKind_STEP_KIND_APPLYING, "creating", resources)
		c.setApplied()
	}
	result, err := c.create(resources, options)
	if err != nil && hook != "" {
		return result, fmt.Errorf("hook %s: %w", hook, err)
	}
	return result, err
}

func (c *client) create(resources kube.ResourceList, options []kube.ClientCreateOption) (*kube.Result, error) {
	if createsServerSide(options) {
		return c.Client.Create(resources, options...)
	}
	if len(resources) == 0 {
		return nil, kube.ErrNoObjectsVisited
	}
	var failures []error
	for _, info := range resources {
		failures = append(failures, createClientSide(info))
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return &kube.Result{Created: resources}, nil
}

func (c *client) Update(original, target kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	c.step(toolv1.StepKind_STEP_KIND_APPLYING, "applying", target)
	c.setApplied()
	if updatesServerSide(options) {
		return c.Client.Update(original, target, options...)
	}
	return c.updateClientSide(original, target, options)
}

func (c *client) Delete(resources kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	if c.hookName(resources) == "" {
		c.step(toolv1.StepKind_STEP_KIND_REMOVING, "removing", resources)
		c.setApplied()
	}
	result, failures := c.Client.Delete(resources, policy)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletions = append(c.deletions, failures...)
	return result, failures
}

// GetPodList and OutputContainerLogsForPodList serve a hook's output-log-policy. Logs of hooks are the cluster's: they
// may hold secrets, and Chandler does not carry them.
func (c *client) GetPodList(string, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{}, nil
}

// OutputContainerLogsForPodList outputs nothing: see GetPodList.
func (c *client) OutputContainerLogsForPodList(*corev1.PodList, string, func(_, _, _ string) io.Writer) error {
	return nil
}

func (c *client) step(kind toolv1.StepKind, verb string, resources kube.ResourceList) {
	c.operation.Step(kind, fmt.Sprintf("%s %s", verb, count(len(resources))))
}

// hookName says which hook this is, if it is one.
func (c *client) hookName(resources kube.ResourceList) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hookName(resources, c.verb, c.applied)
}

func (c *client) setApplied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = true
}

// typed adds what the client knows to an error that Helm returned.
func (c *client) typed(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.built {
		// A template may look things up in the cluster; text/template keeps only the words of what failed there.
		if read := c.operation.Guard.FailedRead(); read != nil {
			return read
		}
		return &failure.Render{Err: err}
	}
	return errors.Join(append([]error{err}, c.deletions...)...)
}

func count(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}

func references(resources kube.ResourceList) []*toolv1.ObjectRef {
	refs := make([]*toolv1.ObjectRef, 0, len(resources))
	for _, info := range resources {
		refs = append(refs, refOf(info))
	}
	return refs
}

func refOf(info *resource.Info) *toolv1.ObjectRef {
	apiVersion, kind := info.Mapping.GroupVersionKind.ToAPIVersionAndKind()
	ref := &toolv1.ObjectRef{ApiVersion: apiVersion, Kind: kind, Name: info.Name}
	if info.Mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ref.Namespace = info.Namespace
	}
	return ref
}

// isNamespace recognises the release's own namespace, which Helm creates by itself.
func isNamespace(resources kube.ResourceList) bool {
	return len(resources) == 1 && resources[0].Mapping.GroupVersionKind.GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
}

// The actions that hooks are named after.
const (
	verbInstall  = "install"
	verbUpgrade  = "upgrade"
	verbRollback = "rollback"
	verbDelete   = "delete"
)

// begin says which action follows, and forgets those before it.
func (c *client) begin(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verb, c.actions, c.applied, c.built, c.deletions = verb, 0, false, false, nil
}
