package cluster

import (
	"net/http"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Session is a cluster as one operation sees it: through the operation's own transport, with the cluster's cached
// APIs. It is what Helm calls a REST client getter.
type Session struct {
	cluster   *Cluster
	transport http.RoundTripper

	mu        sync.Mutex
	refreshed bool
}

var _ genericclioptions.RESTClientGetter = (*Session)(nil)

// Session opens the cluster for one operation.
func (c *Cluster) Session(transport http.RoundTripper) *Session {
	return &Session{cluster: c, transport: transport}
}

// Prepare makes sure that the cluster's APIs are known, and not older than maxAge. Zero: of any age.
func (s *Session) Prepare(maxAge time.Duration) error {
	if s.fresh(maxAge) {
		return nil
	}
	s.cluster.refreshing.Lock()
	defer s.cluster.refreshing.Unlock()
	if s.fresh(maxAge) {
		return nil
	}
	return s.fetch()
}

// PrepareToShow is Prepare for charts that look at what the cluster is. Its version is asked for every time: right after
// an upgrade of Kubernetes, APIs that are a few seconds old show the version before.
func (s *Session) PrepareToShow(maxAge time.Duration) error {
	if !s.fresh(maxAge) {
		return s.Prepare(maxAge)
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		return err
	}
	running, err := client.ServerVersion()
	if err != nil {
		return err
	}
	if running.GitVersion == s.set().Version.GitVersion {
		return nil
	}
	return s.Refresh()
}

// Refresh asks the cluster for its APIs again.
func (s *Session) Refresh() error {
	s.cluster.refreshing.Lock()
	defer s.cluster.refreshing.Unlock()
	return s.fetch()
}

func (s *Session) fresh(maxAge time.Duration) bool {
	known := s.cluster.apis.Load()
	return known != nil && (maxAge == 0 || time.Since(known.since) < maxAge)
}

func (s *Session) fetch() error {
	started := time.Now()
	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		return err
	}
	set, err := fetch(client, s.cluster.shared)
	if err != nil {
		return err
	}
	s.cluster.apis.Store(&knownAPIs{APISet: set, since: started})
	return nil
}

// Capabilities are what templates see of the cluster. Prepare comes first.
func (s *Session) Capabilities() *common.Capabilities { return s.set().Capabilities.Copy() }

func (s *Session) set() *APISet {
	if known := s.cluster.apis.Load(); known != nil {
		return known.APISet
	}
	return &APISet{mapper: meta.MultiRESTMapper{}}
}

// Config is a client configuration that sends everything through the operation's transport.
func (s *Session) Config() *rest.Config {
	config := rest.CopyConfig(&s.cluster.config)
	config.Transport = s.transport
	return config
}

// Namespaced says whether a kind is namespaced, if the cluster's cached APIs know it.
func (s *Session) Namespaced(gvk schema.GroupVersionKind) (namespaced, known bool) {
	mapping, err := s.set().mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, false
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true
}

// refreshOnMiss asks again what the cluster serves, once per operation: a kind may have come since.
func (s *Session) refreshOnMiss() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refreshed {
		return false
	}
	s.refreshed = true
	return s.Refresh() == nil
}

// HasSeenNamespace says whether an operation has succeeded in the namespace, so that none has to make sure of it again.
func (s *Session) HasSeenNamespace(name string) bool {
	_, seen := s.cluster.namespaces.Load(name)
	return seen
}

// NoteNamespace remembers how an operation ended. After a failure the next one makes sure again: someone may have
// deleted the namespace.
func (s *Session) NoteNamespace(name string, succeeded bool) {
	if succeeded {
		s.cluster.namespaces.Store(name, struct{}{})
	} else {
		s.cluster.namespaces.Delete(name)
	}
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (s *Session) ToRESTConfig() (*rest.Config, error) { return s.Config(), nil }

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (s *Session) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	return &cachedDiscovery{DiscoveryInterface: client, session: s}, nil
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (s *Session) ToRESTMapper() (meta.RESTMapper, error) { return &mapper{session: s}, nil }

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter. Helm asks it for a default namespace only.
func (s *Session) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, &clientcmd.ConfigOverrides{})
}
