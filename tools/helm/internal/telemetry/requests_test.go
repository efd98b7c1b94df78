package telemetry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

type fakeTransport struct {
	status int
	err    error
}

func (f fakeTransport) RoundTrip(*http.Request) (*http.Response, error) {
	if f.err != nil {
		return nil, f.err
	}
	return &http.Response{StatusCode: f.status}, nil
}

func TestRequestsAreCountedByVerbAndResult(t *testing.T) {
	rows := []struct {
		method, path string
		base         fakeTransport
		verb, result string
	}{
		{http.MethodGet, "/api?watch=1", fakeTransport{status: 200}, "watch", "success"},
		{http.MethodGet, "/api", fakeTransport{status: 404}, "get", "not_found"},
		{http.MethodPatch, "/api", fakeTransport{status: 409}, "patch", "conflict"},
		{http.MethodPut, "/api", fakeTransport{status: 401}, "put", "unauthorized"},
		{http.MethodPost, "/api", fakeTransport{status: 422}, "post", "refused"},
		{http.MethodDelete, "/api", fakeTransport{status: 503}, "delete", "server_error"},
		{http.MethodHead, "/api", fakeTransport{status: 429}, "other", "throttled"},
		{http.MethodGet, "/api", fakeTransport{err: errors.New("no route")}, "get", "unreachable"},
	}
	for _, row := range rows {
		counter := NewRequestCounter()
		request := httptest.NewRequest(row.method, row.path, nil)
		_, _ = counter.Transport(row.base).RoundTrip(request) //nolint:bodyclose // the response has no body
		counts := counter.Counts()
		if len(counts) != 1 || counts[0].GetVerb() != row.verb || counts[0].GetResult() != row.result || counts[0].GetCount() != 1 {
			t.Errorf("%s %s: %v", row.method, row.path, counts)
		}
	}
}
