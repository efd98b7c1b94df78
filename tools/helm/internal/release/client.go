package release

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

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

// FieldManager is the field manager of all applied objects. It is the same as the helm CLI's, so that both can manage
// the same release.
const FieldManager = "helm"

// client wraps Helm's Kubernetes client. It reports steps to the caller, disables client-side validation (the API
// server validates) and returns typed errors.
type client struct {
	*kube.Client
	operation *operation.Operation
	// ignoreConflicts leaves fields of other field managers unchanged.
	ignoreConflicts atomic.Bool
	// release is the name of the release.
	release string
	// checkManifest and checkRendered, if set, check the rendered objects before the first write.
	checkManifest func(manifest []byte) error
	checkRendered func(rendered kube.ResourceList) error
	// beforeFirstBuild, if set, runs after the objects were rendered and checked.
	beforeFirstBuild func() error
	// rules are what objects may be.
	rules objectRules
	// leftovers are objects of earlier revisions that a rollback deletes as well if the restored revision does not have them.
	leftovers kube.ResourceList
	// removed are the objects of a release that is uninstalled, if there are rules.
	removed kube.ResourceList

	mu sync.Mutex
	// verb is the action that hooks belong to: install, upgrade, rollback, delete or test.
	verb string
	// actions is the number of started Helm actions. The second one starts the rollback after a failure.
	actions int
	// applied is set when the objects of the release are applied. Later hooks are post hooks.
	applied bool
	// rendered is set when Helm has rendered the chart.
	rendered bool
	// deleteErrors are the errors of deletions, of which Helm's uninstall returns only the number.
	deleteErrors []error
	// waitingFor are the objects that it waits for, if there is only one in the collection.
	waitingFor map[collection]string
	// ignored are the fields that were left to other field managers.
	ignored map[string]bool
}

var (
	_ kube.Interface            = (*client)(nil)
	_ kube.InterfaceWaitOptions = (*client)(nil)
)

func newClient(session *cluster.Session, release, namespace string, op *operation.Operation) *client {
	client := &client{operation: op, release: release, rules: session.ObjectRules(), ignored: map[string]bool{}}
	inner := kube.New(ignoringGetter{Session: session, client: client})
	inner.Namespace = namespace
	inner.SetLogger(logging.LibraryHandler(op.Log.Handler()))
	client.Client = inner
	inner.Factory = byNameFactory{Factory: inner.Factory, client: client}
	return client
}

func (c *client) waitsFor(resources kube.ResourceList) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitingFor = onlyNames(resources)
}

// onlyNameIn returns the name of the only object of a collection that it waits for, otherwise "".
func (c *client) onlyNameIn(in collection) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitingFor[in]
}

// IsReachable counts Helm actions, because every action calls it first. It sends no request: the release has just been
// read.
func (c *client) IsReachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.actions++
	// A rollback takes one or two actions: to find the last successful revision and to roll back to it.
	if c.actions == 2 {
		c.startRollback()
	}
	return nil
}

// startRollback reports the rollback and restarts the time limit.
func (c *client) startRollback() {
	c.applied = false
	c.verb = map[string]string{verbInstall: verbDelete, verbUpgrade: verbRollback}[c.verb]
	c.operation.ResetDeadline()
	c.operation.Step(toolv1.StepKind_STEP_KIND_ROLLING_BACK, "rolling back after a failure")
}

// Build parses manifests without client-side validation, which Helm would enable for hooks and namespaces. Helm builds the
// rendered objects first, before it writes anything.
func (c *client) Build(reader io.Reader, _ bool) (kube.ResourceList, error) {
	c.mu.Lock()
	isFirst := !c.rendered
	c.rendered = true
	c.mu.Unlock()
	if isFirst && c.checkManifest != nil {
		manifest, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		if err := c.checkManifest(manifest); err != nil {
			return nil, err
		}
		reader = bytes.NewReader(manifest)
	}
	if isFirst && c.beforeFirstBuild != nil {
		if err := c.beforeFirstBuild(); err != nil {
			return nil, err
		}
	}
	resources, err := c.Client.Build(reader, false)
	if err != nil {
		return resources, &failure.BuildError{Err: flattenAggregate(err)}
	}
	if isFirst && c.checkRendered != nil {
		if err := c.checkRendered(resources); err != nil {
			return nil, err
		}
	}
	return resources, nil
}

// flattenAggregate makes the errors of an Aggregate accessible to errors.As.
func flattenAggregate(err error) error {
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return errors.Join(aggregate.Errors()...)
	}
	return err
}

func (c *client) Create(resources kube.ResourceList, options ...kube.ClientCreateOption) (*kube.Result, error) {
	if err := c.checkResources(resources); err != nil {
		return nil, err
	}
	hook := c.hookName(resources)
	switch {
	case hook != "":
		c.operation.Step(toolv1.StepKind_STEP_KIND_HOOK, "hook "+hook, objectRefs(resources)...)
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
	if isServerSideCreate(options) {
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
	if err := c.checkResources(target); err != nil {
		return &kube.Result{}, err
	}
	c.step(toolv1.StepKind_STEP_KIND_APPLYING, "applying", target)
	c.setApplied()
	if c.isRollback() {
		return c.updateForRollback(original, target, options)
	}
	return c.updateForUpgrade(original, target, options)
}

func (c *client) update(original, target kube.ResourceList, options []kube.ClientUpdateOption) (*kube.Result, error) {
	if err := c.replaceImmutable(target); err != nil {
		return &kube.Result{}, err
	}
	if isServerSideUpdate(options) {
		return c.Client.Update(original, target, options...)
	}
	return c.updateClientSide(original, target, options)
}

func (c *client) Delete(resources kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	if err := c.checkDeleted(resources); err != nil {
		return nil, c.failedDeletions(err)
	}
	if c.hookName(resources) == "" {
		c.step(toolv1.StepKind_STEP_KIND_REMOVING, "deleting", resources)
		c.setApplied()
	}
	result, failures := c.Client.Delete(resources, policy)
	return result, c.failedDeletions(failures...)
}

// failedDeletions records errors of deletions, and returns them.
func (c *client) failedDeletions(failures ...error) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteErrors = append(c.deleteErrors, failures...)
	return failures
}

// GetPodList returns no Pods, so that Helm does not read the logs of hooks for the hook-output-log-policy annotation.
// Logs may contain secrets.
func (c *client) GetPodList(string, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{}, nil
}

// OutputContainerLogsForPodList does nothing, for the same reason as GetPodList.
func (c *client) OutputContainerLogsForPodList(*corev1.PodList, string, func(_, _, _ string) io.Writer) error {
	return nil
}

func (c *client) step(kind toolv1.StepKind, verb string, resources kube.ResourceList) {
	c.operation.Step(kind, fmt.Sprintf("%s %s", verb, countObjects(len(resources))))
}

// hookName returns the display name of a hook, or an empty string if the resources are not a hook.
func (c *client) hookName(resources kube.ResourceList) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hookName(resources, c.verb, c.applied)
}

func (c *client) isRollback() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verb == verbRollback
}

func (c *client) setApplied() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = true
}

// wrapError adds the phase and the causes to an error of a Helm action, so that it can be classified.
func (c *client) wrapError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rendered {
		// The lookup function of templates reads the cluster. text/template does not wrap its errors.
		if read := c.operation.Transport.FailedRead(); read != nil {
			return read
		}
		return &failure.RenderError{Err: err}
	}
	return errors.Join(append([]error{err}, c.deleteErrors...)...)
}

func countObjects(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}

func objectRefs(resources kube.ResourceList) []*toolv1.ObjectRef {
	refs := make([]*toolv1.ObjectRef, 0, len(resources))
	for _, info := range resources {
		refs = append(refs, objectRef(info))
	}
	return refs
}

func objectRef(info *resource.Info) *toolv1.ObjectRef {
	apiVersion, kind := info.Mapping.GroupVersionKind.ToAPIVersionAndKind()
	ref := &toolv1.ObjectRef{ApiVersion: apiVersion, Kind: kind, Name: info.Name}
	if info.Mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		ref.Namespace = info.Namespace
	}
	return ref
}

// isNamespace reports whether the resource is the namespace of the release, which Helm creates.
func isNamespace(resources kube.ResourceList) bool {
	return len(resources) == 1 && resources[0].Mapping.GroupVersionKind.GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
}

// Actions in the names of hook events.
const (
	verbInstall  = "install"
	verbUpgrade  = "upgrade"
	verbRollback = "rollback"
	verbDelete   = "delete"
	verbTest     = "test"
)

// startAction resets the client for an action.
func (c *client) startAction(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verb, c.actions, c.applied, c.rendered, c.deleteErrors, c.removed = verb, 0, false, false, nil, nil
}
