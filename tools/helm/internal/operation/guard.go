// Package operation is the life of one call: its time, its requests and its steps.
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

// ErrStopped is what every request gets once the operation has been stopped.
var ErrStopped = errors.New("the operation has been stopped: no further request is sent")

// settling is how long the answer to a request in flight is waited for when nobody wants it any more.
const settling = 3 * time.Second

// Guard is the transport of one operation. Helm's own context does not stop an upgrade in flight, so this does:
// once stopped, it refuses every further request and waits for those in flight.
type Guard struct {
	base     http.RoundTripper
	timeout  time.Duration
	settling time.Duration

	stopping context.Context
	stop     context.CancelFunc

	mu       sync.Mutex
	stopped  bool
	inFlight sync.WaitGroup
	// reads holds the last failure of every path whose last read failed.
	reads map[string]*failure.Read
}

// NewGuard guards base. Every request that is not a watch must be answered in full within timeout.
func NewGuard(base http.RoundTripper, timeout time.Duration) *Guard {
	stopping, stop := context.WithCancel(context.Background())
	return &Guard{
		base:     base,
		timeout:  timeout,
		settling: settling,
		stopping: stopping,
		stop:     stop,
		reads:    map[string]*failure.Read{},
	}
}

// Stop refuses all further requests and returns when those in flight have ended.
func (g *Guard) Stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.stop()
	g.inFlight.Wait()
}

// FailedRead is a read of the cluster that failed and was not repeated with success. Some of Helm's steps go on
// without what they could not read; whoever runs them has to know. Nil: none.
func (g *Guard) FailedRead() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, read := range g.reads {
		return read
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (g *Guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if !g.enter() {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, ErrStopped
	}
	defer g.inFlight.Done()

	ctx, abort := context.WithCancelCause(context.WithoutCancel(request.Context()))
	flight := &flight{abort: abort, settling: g.settling, stream: isStream(request)}
	forgetStop := context.AfterFunc(g.stopping, func() { flight.letGo(ErrStopped) })
	forgetCaller := context.AfterFunc(request.Context(), func() { flight.letGo(context.Cause(request.Context())) })
	timer := time.AfterFunc(g.timeout, func() { abort(&failure.RequestTimeout{After: g.timeout}) })
	end := func() {
		timer.Stop()
		forgetStop()
		forgetCaller()
		abort(context.Canceled)
	}

	response, err := g.base.RoundTrip(strict(request.Clone(ctx)))
	if err != nil {
		err = cause(ctx, err)
		end()
		g.note(request, 0, err)
		return nil, err
	}
	if flight.stream {
		timer.Stop()
	}
	flight.answered()
	g.note(request, response.StatusCode, nil)
	response.Body = &body{ReadCloser: response.Body, ctx: ctx, end: end}
	return response, nil
}

func (g *Guard) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.inFlight.Add(1)
	return true
}

func (g *Guard) note(request *http.Request, status int, err error) {
	if request.Method != http.MethodGet || isStream(request) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && (status < http.StatusBadRequest || status == http.StatusNotFound) {
		delete(g.reads, request.URL.Path)
		return
	}
	g.reads[request.URL.Path] = &failure.Read{Path: request.URL.Path, Status: status, Err: err}
}

// strict asks the server to refuse unknown and duplicate fields. Helm asks for it with server-side apply only; with
// client-side apply it relies on validation in the client, which is off here.
func strict(request *http.Request) *http.Request {
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

func isStream(request *http.Request) bool {
	query := request.URL.Query()
	return query.Get("watch") == "true" || query.Get("watch") == "1" ||
		query.Get("follow") == "true" && strings.HasSuffix(request.URL.Path, "/log")
}

func cause(ctx context.Context, err error) error {
	if reason := context.Cause(ctx); reason != nil && ctx.Err() != nil && !errors.Is(reason, context.Canceled) {
		return reason
	}
	return err
}

// body keeps a request's limits alive until its answer has been read.
type body struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cause(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
