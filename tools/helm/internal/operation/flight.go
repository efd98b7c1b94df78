package operation

import (
	"context"
	"sync"
	"time"
)

// flight is a request on its way. Aborting does not call it back: what waits in a connection still reaches the API
// server and is done there. So its answer is waited for, within reason, even if nobody wants it any more; when the
// operation has ended, nothing of it is left to arrive.
type flight struct {
	abort    context.CancelCauseFunc
	settling time.Duration
	// stream says that the answer has no end of its own.
	stream bool

	mu     sync.Mutex
	began  bool
	reason error
}

// letGo says that nobody wants the answer.
func (f *flight) letGo(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = reason
	if f.stream && f.began {
		f.abort(reason)
		return
	}
	time.AfterFunc(f.settling, func() { f.abort(reason) })
}

// answered says that the answer has begun.
func (f *flight) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = true
	if f.stream && f.reason != nil {
		f.abort(f.reason)
	}
}
