// Package operation runs one call of the protocol: it enforces the timeout, stops the requests on cancellation and
// reports the steps.
package operation

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"chandler.dev/tools/helm/internal/failure"
)

// ErrStopped is the error of every request after the operation was stopped.
var ErrStopped = errors.New("the operation was stopped and sends no further requests")

// errReadOnly is the error of a request that may change an object in an operation that only reads.
var errReadOnly = errors.New("the operation only reads, but tried to change an object")

// drainTimeout is how long a canceled request may take to receive its response before it is aborted.
const drainTimeout = 3 * time.Second

// Transport is the http.RoundTripper of one operation. Canceling the context of a Helm action does not stop a running
// upgrade, so Transport does: once stopped, it rejects every further request and waits for the requests in flight. Once
// the manager's Lease has expired, it rejects every request and aborts the requests in flight.
type Transport struct {
	base         http.RoundTripper
	timeout      time.Duration
	drainTimeout time.Duration
	lease        *Lease
	// readOnly rejects requests that may change objects.
	readOnly bool

	stopCtx context.Context
	stop    context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	inFlight sync.WaitGroup
	// failedReads holds, by URL path, the error of the last read if it failed.
	failedReads map[string]*failure.ReadError
}

// NewTransport returns a transport on top of base. Every request except watches and followed logs must complete within
// timeout.
func NewTransport(base http.RoundTripper, timeout time.Duration, lease *Lease) *Transport {
	stopCtx, stop := context.WithCancel(context.Background())
	return &Transport{
		base:         base,
		timeout:      timeout,
		drainTimeout: drainTimeout,
		lease:        lease,
		stopCtx:      stopCtx,
		stop:         stop,
		failedReads:  map[string]*failure.ReadError{},
	}
}

// Stop rejects all further requests and returns when the requests in flight have ended.
func (t *Transport) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.stop()
	t.inFlight.Wait()
}

// FailedRead returns the error of a read that failed and did not succeed later, or nil. Some Helm actions ignore failed
// reads, so their callers must check it.
func (t *Transport) FailedRead() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, read := range t.failedReads {
		return read
	}
	return nil
}

// ForgetFailedReads makes FailedRead return only errors of later reads.
func (t *Transport) ForgetFailedReads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failedReads)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.acquire(request); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	defer t.inFlight.Done()

	ctx, abort := context.WithCancelCause(context.WithoutCancel(request.Context()))
	inFlight := &inFlightRequest{abort: abort, drainTimeout: t.drainTimeout, stream: IsStream(request)}
	detachStop := context.AfterFunc(t.stopCtx, func() { inFlight.cancel(ErrStopped) })
	detachLease := context.AfterFunc(t.lease.Context(), func() { abort(ErrLeaseExpired) })
	detachCaller := context.AfterFunc(request.Context(), func() { inFlight.cancel(context.Cause(request.Context())) })
	timer := time.AfterFunc(t.timeout, func() { abort(&failure.RequestTimeoutError{After: t.timeout}) })
	end := func() {
		timer.Stop()
		detachStop()
		detachLease()
		detachCaller()
		abort(context.Canceled)
	}

	response, err := t.base.RoundTrip(withStrictValidation(request.Clone(ctx)))
	if err != nil {
		err = causeOf(ctx, err)
		end()
		t.recordRead(request, 0, err)
		return nil, err
	}
	if inFlight.stream {
		timer.Stop()
	}
	inFlight.responseStarted()
	t.recordRead(request, response.StatusCode, nil)
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, end: end}
	return response, nil
}

// acquire counts a request as in flight, unless it may not be sent.
func (t *Transport) acquire(request *http.Request) error {
	if t.readOnly && request.Method != http.MethodGet {
		return errReadOnly
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return ErrStopped
	}
	if err := t.lease.Err(); err != nil {
		return err
	}
	t.inFlight.Add(1)
	return nil
}

func (t *Transport) recordRead(request *http.Request, status int, err error) {
	if request.Method != http.MethodGet || IsStream(request) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && (status < http.StatusBadRequest || status == http.StatusNotFound) {
		delete(t.failedReads, request.URL.Path)
		return
	}
	t.failedReads[request.URL.Path] = &failure.ReadError{Path: request.URL.Path, Status: status, Err: err}
}

// withStrictValidation makes the API server reject unknown and duplicate fields. Helm does so for server-side apply
// only; for client-side apply it relies on client-side validation, which this driver disables.
func withStrictValidation(request *http.Request) *http.Request {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		return request
	}
	query := request.URL.Query()
	if query.Has("fieldValidation") {
		return request
	}
	query.Set("fieldValidation", "Strict")
	request.URL.RawQuery = query.Encode()
	return request
}

// IsStream returns whether the response has no end that is known, and consists of lines: a watch or a followed log.
func IsStream(request *http.Request) bool {
	query := request.URL.Query()
	return query.Get("watch") == "true" || query.Get("watch") == "1" ||
		query.Get("follow") == "true" && strings.HasSuffix(request.URL.Path, "/log")
}

func causeOf(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); reason != nil && ctx.Err() != nil && !errors.Is(reason, context.Canceled) {
		return reason
	}
	return err
}

// body keeps the timeout and cancellation of a request active until the response body is closed.
type body struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = causeOf(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
