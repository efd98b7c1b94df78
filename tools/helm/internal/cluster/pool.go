// Package cluster connects to workload clusters and caches their transports and discovery.
package cluster

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/address"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/lru"
)

// maxClusters is the maximum number of cached clusters.
const maxClusters = 1024

// Pool caches clusters by name, address and credentials.
type Pool struct {
	clusters *lru.Cache[*Cluster]
	apiSets  *apiSetInterner
	policy   address.Policy
}

// NewPool returns an empty pool of clusters whose addresses the policy allows.
func NewPool(policy address.Policy) *Pool {
	return &Pool{
		clusters: lru.New(maxClusters, func(c *Cluster) { c.transport.CloseIdleConnections() }),
		apiSets:  newAPISetInterner(),
		policy:   policy,
	}
}

// Cluster is one cluster with one set of credentials.
type Cluster struct {
	transport *http.Transport
	host      string
	config    rest.Config
	apiSets   *apiSetInterner

	refreshing sync.Mutex
	apis       atomic.Pointer[cachedAPIs]
	namespaces sync.Map
}

type cachedAPIs struct {
	*APISet
	fetchedAt time.Time
}

// Get returns the cluster of a target.
func (p *Pool) Get(target *toolv1.Target) (*Cluster, error) {
	if target == nil {
		return nil, failure.New(failure.Internal, "the request has no target")
	}
	key, err := cacheKey(target)
	if err != nil {
		return nil, err
	}
	if cached, ok := p.clusters.Get(key); ok {
		return cached, nil
	}
	server, err := url.Parse(target.GetServer())
	if err != nil || server.Host == "" || server.Scheme != "https" {
		return nil, failure.New(failure.Unreachable, "the target's server %q is not an https URL", target.GetServer())
	}
	transport, err := newTransport(target, p.policy)
	if err != nil {
		return nil, err
	}
	created := &Cluster{transport: transport, host: server.Host, config: restConfig(target), apiSets: p.apiSets}
	return p.clusters.Add(key, created, 1), nil
}

// cacheKey returns a digest of the target, so that the key does not contain credentials. Sessions that impersonate users share
// the connections and the APIs of the cluster.
func cacheKey(target *toolv1.Target) (string, error) {
	key := proto.CloneOf(target)
	key.RequestTimeout, key.Impersonate, key.ObjectRules = nil, nil, nil
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return string(sum[:]), nil
}

func restConfig(target *toolv1.Target) rest.Config {
	config := rest.Config{
		Host:           target.GetServer(),
		QPS:            -1, // No client-side limit: the API server has API priority and fairness.
		UserAgent:      "chandler-helm",
		WarningHandler: rest.NoWarnings{},
	}
	switch method := target.GetAuth().GetMethod().(type) {
	case *toolv1.Auth_BearerToken:
		config.BearerToken = method.BearerToken
	case *toolv1.Auth_Basic:
		config.Username = method.Basic.GetUsername()
		config.Password = method.Basic.GetPassword()
	}
	return config
}

// Transport returns the transport that all operations on the cluster share. Each wraps it in its own
// operation.Transport.
func (c *Cluster) Transport() http.RoundTripper { return &guard{base: c.transport, host: c.host} }
