// Package telemetry counts and traces what the driver asks of clusters.
package telemetry

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

// Requests counts requests to clusters, by verb and result.
type Requests struct {
	mu     sync.Mutex
	counts map[kind]uint64
}

type kind struct{ verb, result string }

// NewRequests has counted nothing yet.
func NewRequests() *Requests { return &Requests{counts: map[kind]uint64{}} }

// Counts tells what was counted.
func (r *Requests) Counts() []*toolv1.RequestCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make([]*toolv1.RequestCount, 0, len(r.counts))
	for kind, count := range r.counts {
		counts = append(counts, &toolv1.RequestCount{Verb: kind.verb, Result: kind.result, Count: count})
	}
	slices.SortFunc(counts, func(a, b *toolv1.RequestCount) int {
		return cmp.Or(cmp.Compare(a.GetVerb(), b.GetVerb()), cmp.Compare(a.GetResult(), b.GetResult()))
	})
	return counts
}

// Counting counts the requests that go through base.
func (r *Requests) Counting(base http.RoundTripper) http.RoundTripper {
	return counting{requests: r, base: base}
}

type counting struct {
	requests *Requests
	base     http.RoundTripper
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(request)
	counted := kind{verb: verb(request), result: "unreachable"}
	if err == nil {
		counted.result = result(response.StatusCode)
	}
	c.requests.mu.Lock()
	c.requests.counts[counted]++
	c.requests.mu.Unlock()
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
