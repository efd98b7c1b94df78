// Package telemetry counts and traces the requests that the driver sends to clusters.
package telemetry

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// RequestCounter counts requests to clusters, by verb and result.
type RequestCounter struct {
	mu     sync.Mutex
	counts map[countKey]uint64
}

type countKey struct{ verb, result string }

// NewRequestCounter returns a counter without counts.
func NewRequestCounter() *RequestCounter { return &RequestCounter{counts: map[countKey]uint64{}} }

// Counts returns the counts, sorted by verb and result.
func (r *RequestCounter) Counts() []*toolv1.RequestCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make([]*toolv1.RequestCount, 0, len(r.counts))
	for key, count := range r.counts {
		counts = append(counts, &toolv1.RequestCount{Verb: key.verb, Result: key.result, Count: count})
	}
	slices.SortFunc(counts, func(a, b *toolv1.RequestCount) int {
		return cmp.Or(cmp.Compare(a.GetVerb(), b.GetVerb()), cmp.Compare(a.GetResult(), b.GetResult()))
	})
	return counts
}

// Transport returns a transport that counts the requests sent through base.
func (r *RequestCounter) Transport(base http.RoundTripper) http.RoundTripper {
	return countingTransport{counter: r, base: base}
}

type countingTransport struct {
	counter *RequestCounter
	base    http.RoundTripper
}

func (c countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(request)
	key := countKey{verb: verb(request), result: "unreachable"}
	if err == nil {
		key.result = result(response.StatusCode)
	}
	c.counter.mu.Lock()
	c.counter.counts[key]++
	c.counter.mu.Unlock()
	return response, err
}

func verb(request *http.Request) string {
	switch request.Method {
	case http.MethodGet:
		if watch := request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			return "watch"
		}
		return "get"
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return strings.ToLower(request.Method)
	default:
		return "other"
	}
}

func result(status int) string {
	switch {
	case status < http.StatusBadRequest:
		return "success"
	case status == http.StatusUnauthorized:
		return "unauthorized"
	case status == http.StatusForbidden:
		return "forbidden"
	case status == http.StatusNotFound:
		return "not_found"
	case status == http.StatusConflict:
		return "conflict"
	case status == http.StatusTooManyRequests:
		return "throttled"
	case status < http.StatusInternalServerError:
		return "refused"
	default:
		return "server_error"
	}
}
