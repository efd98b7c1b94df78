package cluster

import (
	"io"
	"net/http"
	"sync/atomic"

	"chandler.dev/tools/helm/internal/failure"
)

const (
	// maxDiscovery is the maximum size of all responses of one discovery together, whose content the driver keeps.
	maxDiscovery = 16 << 20
	// maxDiscoveryRequests is the maximum number of its requests. An API server without aggregated discovery needs one for
	// each version of an API group.
	maxDiscoveryRequests = 1000
)

// discoveryLimit is the transport of one discovery.
type discoveryLimit struct {
	base            http.RoundTripper
	bytes, requests atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (l *discoveryLimit) RoundTrip(request *http.Request) (*http.Response, error) {
	if l.requests.Add(1) > maxDiscoveryRequests {
		return nil, failure.New(failure.Unreachable, "the cluster's API server has more than %d versions of API groups, which are not read",
			maxDiscoveryRequests)
	}
	response, err := l.base.RoundTrip(request)
	if err == nil {
		response.Body = &discoveryBody{ReadCloser: response.Body, limit: l}
	}
	return response, err
}

// discoveryBody counts the bytes of a response.
type discoveryBody struct {
	io.ReadCloser
	limit *discoveryLimit
}

func (b *discoveryBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.limit.bytes.Add(int64(n)) > maxDiscovery {
		return 0, failure.New(failure.Unreachable, "the discovery of the cluster's API server has more than %d MiB, which is not read",
			maxDiscovery>>20)
	}
	return n, err
}
