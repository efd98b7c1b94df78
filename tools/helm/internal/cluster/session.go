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

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// Session is the access of one operation to a cluster. It uses the operation's transport and the cached discovery of
// the cluster, and implements the RESTClientGetter that Helm expects.
type Session struct {
	cluster   *Cluster
	transport http.RoundTripper
	// impersonate is the user as which objects of releases are read and changed.
	impersonate rest.ImpersonationConfig
	rules       []*toolv1.ObjectRule

	mu        sync.Mutex
	refreshed bool
}

var _ genericclioptions.RESTClientGetter = (*Session)(nil)

// Session returns a session that sends requests through transport, as the user that the target names.
func (c *Cluster) Session(transport http.RoundTripper, target *toolv1.Target) *Session {
	as := target.GetImpersonate()
	return &Session{
		cluster:     c,
		transport:   transport,
		impersonate: rest.ImpersonationConfig{UserName: as.GetUser(), Groups: as.GetGroups()},
		rules:       target.GetObjectRules(),
	}
}

// Impersonates reports whether objects of releases are read and changed as another user than that of the credentials.
func (s *Session) Impersonates() bool { return s.impersonate.UserName != "" }

// ObjectRules returns what the objects of releases may be.
func (s *Session) ObjectRules() []*toolv1.ObjectRule { return s.rules }

// EnsureDiscovery fetches the cluster's APIs unless they are cached and not older than maxAge. Zero means any age.
func (s *Session) EnsureDiscovery(maxAge time.Duration) error {
	if s.isFresh(maxAge) {
		return nil
	}
	s.cluster.refreshing.Lock()
	defer s.cluster.refreshing.Unlock()
	if s.isFresh(maxAge) {
		return nil
	}
	return s.fetch()
}

// EnsureCapabilities is EnsureDiscovery for charts that use .Capabilities or kubeVersion. It always reads the version
// of the API server, because cached APIs have the old version right after an upgrade of Kubernetes.
func (s *Session) EnsureCapabilities(maxAge time.Duration) error {
	if !s.isFresh(maxAge) {
		return s.EnsureDiscovery(maxAge)
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.OwnConfig())
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

// Refresh fetches the cluster's APIs.
func (s *Session) Refresh() error {
	s.cluster.refreshing.Lock()
	defer s.cluster.refreshing.Unlock()
	return s.fetch()
}

func (s *Session) isFresh(maxAge time.Duration) bool {
	known := s.cluster.apis.Load()
	return known != nil && (maxAge == 0 || time.Since(known.fetchedAt) < maxAge)
}

func (s *Session) fetch() error {
	started := time.Now()
	config := s.OwnConfig()
	config.Transport = &discoveryLimit{base: config.Transport}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	set, err := fetchAPIs(client, s.cluster.apiSets)
	if err != nil {
		return err
	}
	s.cluster.apis.Store(&cachedAPIs{APISet: set, fetchedAt: started})
	return nil
}

// Capabilities returns the .Capabilities of the cluster for templates. EnsureDiscovery must be called first.
func (s *Session) Capabilities() *common.Capabilities { return s.set().Capabilities.Copy() }

func (s *Session) set() *APISet {
	if known := s.cluster.apis.Load(); known != nil {
		return known.APISet
	}
	return &APISet{mapper: meta.MultiRESTMapper{}}
}

// Config returns a client configuration for objects of releases, with the operation's transport.
func (s *Session) Config() *rest.Config {
	config := s.OwnConfig()
	config.Impersonate = s.impersonate
	return config
}

// OwnConfig returns a client configuration that impersonates no user, for records of releases and the cluster's APIs.
func (s *Session) OwnConfig() *rest.Config {
	config := rest.CopyConfig(&s.cluster.config)
	config.Transport = s.transport
	return config
}

// Namespaced reports whether a kind is namespaced and whether the cached APIs contain it.
func (s *Session) Namespaced(gvk schema.GroupVersionKind) (namespaced, known bool) {
	mapping, err := s.set().mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, false
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true
}

// refreshOnMiss fetches the APIs again if a kind is missing, at most once per operation. It reports whether it did.
func (s *Session) refreshOnMiss() bool {
	refreshed, err := s.refreshOnce()
	return refreshed && err == nil
}

// RefreshMissing fetches the APIs again because a kind is missing, at most once per operation.
func (s *Session) RefreshMissing() error {
	_, err := s.refreshOnce()
	return err
}

// refreshOnce fetches the APIs again unless the operation has done so. It reports whether it tried.
func (s *Session) refreshOnce() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refreshed {
		return false, nil
	}
	s.refreshed = true
	return true, s.Refresh()
}

// NamespaceCached reports whether the last operation in the namespace succeeded, so that the namespace needs no check.
func (s *Session) NamespaceCached(name string) bool {
	_, seen := s.cluster.namespaces.Load(name)
	return seen
}

// UpdateNamespaceCache records the result of an operation in the namespace. After a failure the next operation checks
// the namespace, which may have been deleted.
func (s *Session) UpdateNamespaceCache(name string, succeeded bool) {
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
	client, err := discovery.NewDiscoveryClientForConfig(s.OwnConfig())
	if err != nil {
		return nil, err
	}
	return &cachedDiscovery{DiscoveryInterface: client, session: s}, nil
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (s *Session) ToRESTMapper() (meta.RESTMapper, error) { return &mapper{session: s}, nil }

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter. Helm uses it only for the default namespace.
func (s *Session) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, &clientcmd.ConfigOverrides{})
}
