package operation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

func get(t *testing.T, transport *Transport, url string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return transport.RoundTrip(request)
}

func TestTransportRejectsRequestsAfterStop(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	transport := NewTransport(http.DefaultTransport, time.Minute, NewLease())
	response, err := get(t, transport, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	transport.Stop()
	if _, err := get(t, transport, server.URL); !errors.Is(err, ErrStopped) {
		t.Fatalf("got %v", err)
	}
	if served.Load() != 1 {
		t.Fatalf("%d requests arrived", served.Load())
	}
}

func TestStopAbortsRequestsInFlight(t *testing.T) {
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer server.Close()
	transport := NewTransport(http.DefaultTransport, time.Minute, NewLease())
	transport.drainTimeout = 10 * time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := get(t, transport, server.URL)
		ended <- err
	}()
	<-arrived
	transport.Stop()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrStopped) {
			t.Fatalf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Stop did not end the request")
	}
}

func TestStopWaitsForRequestsInFlight(t *testing.T) {
	arrived := make(chan struct{})
	var done atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		time.Sleep(100 * time.Millisecond)
		done.Store(true)
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	transport := NewTransport(http.DefaultTransport, time.Minute, NewLease())
	ended := make(chan error, 1)
	caller, cancel := context.WithCancel(context.Background())
	go func() {
		request, err := http.NewRequestWithContext(caller, http.MethodPost, server.URL, nil)
		if err == nil {
			var response *http.Response
			if response, err = transport.RoundTrip(request); err == nil {
				err = response.Body.Close()
			}
		}
		ended <- err
	}()
	<-arrived
	cancel()
	transport.Stop()
	if !done.Load() {
		t.Fatal("Stop returned while the server was still processing the request")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestStopEndsWatchesImmediately(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	transport := NewTransport(http.DefaultTransport, time.Minute, NewLease())
	response, err := get(t, transport, server.URL+"?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	transport.Stop()
	if _, err := io.ReadAll(response.Body); !errors.Is(err, ErrStopped) {
		t.Fatalf("got %v", err)
	}
}

func TestTimeoutAppliesToRequestsButNotWatches(t *testing.T) {
	// Long enough for the headers on a busy machine.
	const timeout = 2 * time.Second
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(2 * timeout):
			_, _ = io.WriteString(w, "late")
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	cases := map[string]struct {
		query   string
		timeout bool
	}{"request": {"", true}, "watch": {"?watch=true", false}}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			transport := NewTransport(http.DefaultTransport, timeout, NewLease())
			response, err := get(t, transport, server.URL+c.query)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			_, timedOut := errors.AsType[*failure.RequestTimeoutError](err)
			if timedOut != c.timeout || !timedOut && (err != nil || string(body) != "late") {
				t.Fatalf("got %q, %v", body, err)
			}
		})
	}
}

func TestWritesUseStrictFieldValidation(t *testing.T) {
	cases := map[string]struct{ method, query, want string }{
		"a read":      {http.MethodGet, "", ""},
		"a create":    {http.MethodPost, "", "Strict"},
		"a patch":     {http.MethodPatch, "?fieldManager=helm", "Strict"},
		"already set": {http.MethodPatch, "?fieldValidation=Ignore", "Ignore"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(c.method, "http://server/"+c.query, nil)
			if got := withStrictValidation(request).URL.Query().Get("fieldValidation"); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestFailedReadsAreReported(t *testing.T) {
	status := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	transport := NewTransport(http.DefaultTransport, time.Minute, NewLease())
	read := func() {
		response, err := get(t, transport, server.URL+"/x")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	read()
	if got := failure.Classify(transport.FailedRead()).Category; got != failure.Forbidden {
		t.Fatalf("got %v", got)
	}
	status = http.StatusNotFound
	read()
	if err := transport.FailedRead(); err != nil {
		t.Fatalf("not found is not a failed read: %v", err)
	}
	status = http.StatusForbidden
	read()
	transport.ForgetFailedReads()
	if err := transport.FailedRead(); err != nil {
		t.Fatalf("an earlier read is reported: %v", err)
	}
}

func TestRunReturnsAfterTheWorkHasEnded(t *testing.T) {
	cases := map[string]struct {
		begin func() (context.Context, context.CancelFunc)
		want  toolv1.FailureCategory
	}{
		"cancelled": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, failure.Cancelled},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Millisecond)
		}, failure.Timeout},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := c.begin()
			defer cancel()
			set := NewSet()
			operation, err := set.Begin(ctx, Options{
				Base: http.DefaultTransport, RequestTimeout: time.Second, Timeout: time.Second, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			var ended atomic.Bool
			err = operation.Run(func() error {
				<-operation.Context().Done()
				time.Sleep(20 * time.Millisecond)
				_, err := get(t, operation.Transport, "http://127.0.0.1:1")
				ended.Store(true)
				return err
			})
			operation.End()
			if !ended.Load() {
				t.Fatal("Run returned before the work had ended")
			}
			if got := failure.Classify(err).Category; got != c.want {
				t.Fatalf("got %v of %v, want %v", got, err, c.want)
			}
			if set.Running() != 0 {
				t.Fatal("the operation is still counted")
			}
		})
	}
}
