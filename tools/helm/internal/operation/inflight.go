package operation

import (
	"context"
	"sync"
	"time"
)

// inFlightRequest is a request that was sent. Aborting it does not recall it: the API server may still receive and
// process it. So a canceled request waits for its response up to drainTimeout. When the operation ends, none of its
// requests is still on the way to the API server.
type inFlightRequest struct {
	abort        context.CancelCauseFunc
	drainTimeout time.Duration
	// stream is set if the response is a watch or a followed log, which does not end by itself.
	stream bool

	mu      sync.Mutex
	started bool
	reason  error
}

// cancel aborts the request with reason: a stream that has started at once, any other request after drainTimeout.
func (r *inFlightRequest) cancel(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reason = reason
	if r.stream && r.started {
		r.abort(reason)
		return
	}
	time.AfterFunc(r.drainTimeout, func() { r.abort(reason) })
}

// responseStarted records that the response headers have arrived, and aborts a stream that was canceled before.
func (r *inFlightRequest) responseStarted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	if r.stream && r.reason != nil {
		r.abort(r.reason)
	}
}
