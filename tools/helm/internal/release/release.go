// Package release installs, upgrades, reads and uninstalls releases with the Helm SDK.
package release

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/operation"
)

const (
	// discoveryMaxAge is the maximum age of the cached APIs for mapping kinds, which refreshes them on a miss.
	discoveryMaxAge = 10 * time.Minute
	// capabilitiesMaxAge is the maximum age of the cached APIs for templates that use .Capabilities.
	capabilitiesMaxAge = 30 * time.Second
)

// Release is a release on a cluster. It is valid for one operation.
type Release struct {
	name, namespace string

	session   *cluster.Session
	operation *operation.Operation
	records   *records
	client    *client
	// definedAPIs are the API versions of CRDs that the package creates, but not before its objects are rendered.
	definedAPIs common.VersionSet
}

// Open returns the release for an operation. It sends no requests.
func Open(identity *toolv1.Release, session *cluster.Session, op *operation.Operation) (*Release, error) {
	name, namespace := identity.GetName(), identity.GetNamespace()
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return nil, failure.Wrap(failure.InvalidValues, err, "release name %q: %v", name, err)
	}
	if namespace == "" {
		return nil, failure.New(failure.InvalidValues, "the release has no namespace")
	}
	config := session.OwnConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	release := &Release{
		name:      name,
		namespace: namespace,
		session:   session,
		operation: op,
		records:   newRecords(core.Secrets(namespace), name),
		client:    newClient(session, name, namespace, op),
	}
	release.records.keepFailed = release.client.isRollback
	return release, nil
}

// configuration returns the configuration of a Helm action.
func (r *Release) configuration() *action.Configuration {
	secrets := driver.NewSecrets(r.records)
	secrets.SetLogger(logging.LibraryHandler(r.operation.Log.Handler()))
	config := action.NewConfiguration(action.ConfigurationSetLogger(logging.LibraryHandler(r.operation.Log.Handler())))
	config.RESTClientGetter = r.session
	config.KubeClient = r.client
	config.Releases = storage.Init(secrets)
	config.Capabilities = r.session.Capabilities()
	if len(r.definedAPIs) > 0 {
		config.Capabilities.APIVersions = slices.Concat(config.Capabilities.APIVersions, r.definedAPIs)
	}
	config.HookOutputFunc = func(_, _, _ string) io.Writer { return io.Discard }
	return config
}

// last returns the newest revision, or nil if the release does not exist.
func (r *Release) last() (*rspb.Release, error) {
	newest, err := r.records.newest(1)
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	return newest[0], nil
}

// fetchLast returns the newest revision like last, and reports the step FETCHED.
func (r *Release) fetchLast() (*rspb.Release, error) {
	last, err := r.last()
	if err != nil {
		return nil, err
	}
	message := "no release"
	if last != nil {
		message = fmt.Sprintf("revision %d is %s", last.Version, last.Info.Status)
	}
	r.operation.Step(toolv1.StepKind_STEP_KIND_FETCHED, message)
	return last, nil
}

// CachedState returns the state of the newest revision without sending a request, or nil if it is not cached.
func (r *Release) CachedState() *toolv1.ReleaseState {
	if !r.records.isLoaded() {
		return nil
	}
	last, err := r.last()
	if err != nil || last == nil {
		return nil
	}
	state, err := newState(last, r.session)
	if err != nil {
		return nil
	}
	return state
}

// PendingRevision returns the newest revision if it is pending and has this input digest, or 0, without sending a request.
func (r *Release) PendingRevision(digest string) int {
	if digest == "" || !r.records.isLoaded() {
		return 0
	}
	last, err := r.last()
	if err != nil || last == nil || !last.Info.Status.IsPending() || inputDigest(last.Labels, last.Version) != digest {
		return 0
	}
	return last.Version
}

// EndPending marks a revision as failed if it is the newest one and still pending.
func (r *Release) EndPending(revision int) error {
	last, err := r.last()
	if err != nil || last == nil || last.Version != revision || !last.Info.Status.IsPending() {
		return err
	}
	_, err = r.recover(applyPlan{unlock: true}, last)
	return err
}

// Observe returns the state of the release with up to history revisions, or nil if the release does not exist.
func (r *Release) Observe(history int) (*toolv1.ReleaseState, error) {
	if err := r.session.EnsureDiscovery(0); err != nil {
		return nil, err
	}
	newest, err := r.records.newest(max(history, 1))
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	state, err := newState(newest[0], r.session)
	if err != nil {
		return nil, err
	}
	if history > 0 {
		state.History = newHistory(newest)
	}
	return state, nil
}

var errNoRelease = errors.New("the release does not exist")

// state returns the state of the newest revision after an operation.
func (r *Release) state() (*toolv1.ReleaseState, error) {
	last, err := r.last()
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, failure.Wrap(failure.Conflict, errNoRelease, "the release was deleted during the operation")
	}
	return newState(last, r.session)
}
