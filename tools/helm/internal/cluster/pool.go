// Package cluster knows how to talk to clusters: their transports, and what APIs they serve.
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
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/lru"
)

// maxClusters bounds the connections and API sets that are kept.
const maxClusters = 1024

// Pool keeps what is known of clusters, by identity, address and credentials.
type Pool struct {
	clusters *lru.Cache[*Cluster]
	shared   *interned
}

// NewPool makes an empty pool.
func NewPool() *Pool {
	return &Pool{
		clusters: lru.New(maxClusters, func(c *Cluster) { c.transport.CloseIdleConnections() }),
		shared:   newInterned(),
	}
}

// Cluster is one cluster with one set of credentials.
type Cluster struct {
	transport *http.Transport
	config    rest.Config
	shared    *interned

	refreshing sync.Mutex
	apis       atomic.Pointer[knownAPIs]
	namespaces sync.Map
}

type knownAPIs struct {
	*APISet
	since time.Time
}

// Get finds or makes the cluster of a target.
func (p *Pool) Get(target *toolv1.Target) (*Cluster, error) {
	if target == nil {
		return nil, failure.New(failure.Internal, "the request names no target")
	}
	key, err := identity(target)
	if err != nil {
		return nil, err
	}
	if known, ok := p.clusters.Get(key); ok {
		return known, nil
	}
	server, err := url.Parse(target.GetServer())
	if err != nil || server.Host == "" || server.Scheme != "https" {
		return nil, failure.New(failure.Unreachable, "the target's server %q is not an https URL", target.GetServer())
	}
	transport, err := newTransport(target)
	if err != nil {
		return nil, err
	}
	made := &Cluster{transport: transport, config: restConfig(target), shared: p.shared}
	return p.clusters.Add(key, made, 1), nil
}

// identity is a digest: the credentials themselves are no key.
func identity(target *toolv1.Target) (string, error) {
	without := proto.CloneOf(target)
	without.RequestTimeout = nil
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(without)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return string(sum[:]), nil
}

func restConfig(target *toolv1.Target) rest.Config {
	config := rest.Config{
		Host:           target.GetServer(),
		QPS:            -1, // The API server's own priority and fairness does this better.
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
	if as := target.GetImpersonate(); as.GetUser() != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: as.GetUser(), Groups: as.GetGroups()}
	}
	return config
}

// Transport is shared by all operations on the cluster; each puts its own guard before it.
func (c *Cluster) Transport() http.RoundTripper { return c.transport }
