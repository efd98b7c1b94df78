package telemetry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

type answer struct {
	status int
	err    error
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status}, nil
}

func TestRequestsAreCountedByVerbAndResult(t *testing.T) {
	rows := []struct {
		method, path string
		answer       answer
		verb, result string
	}{
		{http.MethodGet, "/api?watch=1", answer{status: 200}, "watch", "success"},
		{http.MethodGet, "/api", answer{status: 404}, "get", "not_found"},
		{http.MethodPatch, "/api", answer{status: 409}, "patch", "conflict"},
		{http.MethodPut, "/api", answer{status: 401}, "put", "unauthorized"},
		{http.MethodPost, "/api", answer{status: 422}, "post", "refused"},
		{http.MethodDelete, "/api", answer{status: 503}, "delete", "server_error"},
		{http.MethodHead, "/api", answer{status: 429}, "other", "throttled"},
		{http.MethodGet, "/api", answer{err: errors.New("no route")}, "get", "unreachable"},
	}
	for _, row := range rows {
		requests := NewRequests()
		request := httptest.NewRequest(row.method, row.path, nil)
		_, _ = requests.Counting(row.answer).RoundTrip(request) //nolint:bodyclose // there is none
		counts := requests.Counts()
		if len(counts) != 1 || counts[0].GetVerb() != row.verb || counts[0].GetResult() != row.result || counts[0].GetCount() != 1 {
			t.Errorf("%s %s: %v", row.method, row.path, counts)
		}
	}
}
