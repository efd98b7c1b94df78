// Package release installs, upgrades, observes and removes one release with the Helm SDK.
package release

import (
	"errors"
	"fmt"
	"io"
	"time"

	"helm.sh/helm/v4/pkg/action"
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
	// apisMaxAge is how old the cached APIs of a cluster may be when nothing depends on them but the mapping of
	// kinds, which refreshes itself on a miss.
	apisMaxAge = 10 * time.Minute
	// apisMaxAgeRead is how old they may be when templates read them.
	apisMaxAgeRead = 30 * time.Second
)

// Release is one release on one cluster, for one operation.
type Release struct {
	name, namespace string

	session   *cluster.Session
	operation *operation.Operation
	records   *records
	client    *client
}

// Open prepares the release for an operation. It sends nothing.
func Open(identity *toolv1.Release, session *cluster.Session, op *operation.Operation) (*Release, error) {
	name, namespace := identity.GetName(), identity.GetNamespace()
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return nil, failure.Wrap(failure.InvalidValues, err, "release name %q: %v", name, err)
	}
	if namespace == "" {
		return nil, failure.New(failure.InvalidValues, "the release has no namespace")
	}
	config := session.Config()
	config.ContentType = runtime.ContentTypeProtobuf
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Release{
		name:      name,
		namespace: namespace,
		session:   session,
		operation: op,
		records:   newRecords(core.Secrets(namespace), name),
		client:    newClient(session, namespace, op),
	}, nil
}

// configuration is what a Helm action works with.
func (r *Release) configuration() *action.Configuration {
	secrets := driver.NewSecrets(r.records)
	secrets.SetLogger(logging.Quiet(r.operation.Log.Handler()))
	config := action.NewConfiguration(action.ConfigurationSetLogger(logging.Quiet(r.operation.Log.Handler())))
	config.RESTClientGetter = r.session
	config.KubeClient = r.client
	config.Releases = storage.Init(secrets)
	config.Capabilities = r.session.Capabilities()
	config.HookOutputFunc = func(_, _, _ string) io.Writer { return io.Discard }
	return config
}

// last is the newest revision. Nil: there is none.
func (r *Release) last() (*rspb.Release, error) {
	newest, err := r.records.newest(1)
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	return newest[0], nil
}

// fetched reads the release's state and says so.
func (r *Release) fetched() (*rspb.Release, error) {
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

// KnownState is the newest revision as far as the operation has seen it, without a request. Nil: not known, or none.
func (r *Release) KnownState() *toolv1.ReleaseState {
	if !r.records.known() {
		return nil
	}
	last, err := r.last()
	if err != nil || last == nil {
		return nil
	}
	state, err := stateOf(last, r.session)
	if err != nil {
		return nil
	}
	return state
}

// Observe reads the release. Nil: there is none.
func (r *Release) Observe(history int) (*toolv1.ReleaseState, error) {
	if err := r.session.Prepare(0); err != nil {
		return nil, err
	}
	newest, err := r.records.newest(max(history, 1))
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	state, err := stateOf(newest[0], r.session)
	if err != nil {
		return nil, err
	}
	if history > 0 {
		state.History = revisionsOf(newest)
	}
	return state, nil
}

var errGone = errors.New("the record is gone")

// state describes the newest revision after an operation.
func (r *Release) state() (*toolv1.ReleaseState, error) {
	last, err := r.last()
	if err != nil {
		return nil, err
	}
	if last == nil {
		return nil, failure.Wrap(failure.Conflict, errGone, "the release was removed while the operation ran")
	}
	return stateOf(last, r.session)
}
