package operation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cpulimit"
	"chandler.dev/tools/helm/internal/failure"
)

const (
	// DefaultTimeout is the timeout of an operation whose request sets none.
	DefaultTimeout = 10 * time.Minute
	// DefaultRequestTimeout is the timeout of an API request if the target sets none.
	DefaultRequestTimeout = 30 * time.Second
	// stopTimeout is how long a stopped operation may take to end. Its transport rejects all requests, so only a
	// template that does not terminate exceeds it.
	stopTimeout = 30 * time.Second
)

// Set tracks the running operations of the process.
type Set struct {
	// Lease limits the requests of all operations.
	Lease *Lease
	// CPU limits the CPU time of every operation. nil means no limit.
	CPU *cpulimit.Limit

	mu      sync.Mutex
	running map[*Operation]struct{}
	stopped bool
}

// NewSet returns an empty set with a lease without limit.
func NewSet() *Set { return &Set{Lease: NewLease(), running: map[*Operation]struct{}{}} }

// Running returns the number of running operations.
func (s *Set) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// StopAll stops the requests of all operations and rejects new operations. It is called before the process exits.
func (s *Set) StopAll() {
	s.mu.Lock()
	s.stopped = true
	running := make([]*Operation, 0, len(s.running))
	for operation := range s.running {
		running = append(running, operation)
	}
	s.mu.Unlock()
	var wait sync.WaitGroup
	for _, operation := range running {
		wait.Go(operation.Transport.Stop)
	}
	wait.Wait()
}

// Cancel cancels the operation with the given ID and returns when the operation has ended or ctx is done. It reports
// whether the operation was running.
func (s *Set) Cancel(ctx context.Context, id string) bool {
	operation := s.find(id)
	if operation == nil {
		return false
	}
	operation.cancel()
	select {
	case <-operation.ended:
	case <-ctx.Done():
	}
	return true
}

func (s *Set) find(id string) *Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	for operation := range s.running {
		if id != "" && operation.id == id {
			return operation
		}
	}
	return nil
}

// Options configures an operation.
type Options struct {
	// ID identifies the operation for Cancel. An operation without ID cannot be canceled by Cancel.
	ID string
	// Base is the transport of the cluster.
	Base http.RoundTripper
	// RequestTimeout is the timeout of one API request.
	RequestTimeout time.Duration
	// Timeout limits the waits of the operation. The operation as a whole may take recordingTimeout longer.
	Timeout time.Duration
	// ReadOnly makes the operation fail if it sends a request that may change an object.
	ReadOnly bool
	// Rollback is set if a failure is followed by a rollback, which gets another Timeout.
	Rollback bool
	// Send sends a step to the caller. If it is nil, steps are dropped.
	Send func(*toolv1.Step) error
	Log  *slog.Logger
}

// Operation is one running call.
type Operation struct {
	Transport *Transport
	Log       *slog.Logger

	id     string
	set    *Set
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}

	mu       sync.Mutex
	send     func(*toolv1.Step) error
	timeout  time.Duration
	deadline time.Time
}

// recordingTimeout is how long an operation may take beyond its waits, to write its result to the cluster.
const recordingTimeout = time.Minute

// Begin starts an operation. The caller must call End.
func (s *Set) Begin(ctx context.Context, options Options) (*Operation, error) {
	limit := options.Timeout + recordingTimeout
	if options.Rollback {
		limit += options.Timeout
	}
	if err := s.Lease.Err(); err != nil {
		return nil, leaseFailure(err)
	}
	ctx, cancel := s.operationContext(ctx, limit)
	operation := &Operation{
		Transport: NewTransport(options.Base, options.RequestTimeout, s.Lease),
		Log:       options.Log,
		id:        options.ID,
		set:       s,
		ctx:       ctx,
		cancel:    cancel,
		ended:     make(chan struct{}),
		send:      options.Send,
		timeout:   options.Timeout,
		deadline:  time.Now().Add(options.Timeout),
	}
	operation.Transport.readOnly = options.ReadOnly
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		cancel()
		return nil, failure.New(failure.Cancelled, "the Helm driver is shutting down")
	}
	s.running[operation] = struct{}{}
	return operation, nil
}

// operationContext returns a context that is done after limit, or when the lease expires.
func (s *Set) operationContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, cancelTimeout := context.WithTimeout(ctx, limit)
	detach := context.AfterFunc(s.Lease.Context(), func() { cancel(ErrLeaseExpired) })
	return ctx, func() {
		detach()
		cancelTimeout()
		cancel(context.Canceled)
	}
}

func leaseFailure(err error) error {
	return failure.Wrap(failure.Cancelled, err,
		"%v: the Helm driver stopped the operation, and the manager that holds the Lease continues", ErrLeaseExpired)
}

// Context returns the context of the operation, which is done when the operation is canceled or times out, or when the
// lease expires.
func (o *Operation) Context() context.Context { return o.ctx }

// Run calls work and returns when it has ended. After a cancellation the transport rejects requests, so work fails at
// its next request.
func (o *Operation) Run(work func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				o.Log.Error("the operation panicked", "stack", string(debug.Stack()))
				done <- failure.New(failure.Internal, "the Helm driver panicked: %v", reason)
			}
		}()
		o.set.CPU.Run(func() { done <- work() })
	}()
	select {
	case err := <-done:
		return o.resultError(err)
	case <-o.ctx.Done():
	}
	o.Transport.Stop()
	select {
	case err := <-done:
		return o.resultError(err)
	case <-time.After(stopTimeout):
		o.Log.Error("the operation does not end; its requests are rejected")
		return o.resultError(o.ctx.Err())
	}
}

// resultError returns the reason for the cancellation, if there is one, instead of the error that it caused.
func (o *Operation) resultError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(o.ctx), ErrLeaseExpired) || o.set.Lease.Err() != nil {
		return leaseFailure(err)
	}
	switch ctxErr := o.ctx.Err(); {
	case ctxErr == nil && errors.Is(err, ErrStopped):
		return failure.Wrap(failure.Cancelled, err, "the Helm driver is shutting down")
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return failure.Wrap(failure.Timeout, err, "the operation timed out%s", lastErrorSuffix(err))
	case ctxErr != nil:
		return failure.Wrap(failure.Cancelled, err, "the operation was canceled")
	}
	return err
}

// lastErrorSuffix returns the error for a timeout message, unless the timeout itself caused it.
func lastErrorSuffix(err error) string {
	if errors.Is(err, ErrStopped) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return fmt.Sprintf("; last error: %v", err)
}

// End stops the transport and removes the operation from its set. The operation sends no request after End.
func (o *Operation) End() {
	o.mu.Lock()
	o.send = nil
	o.mu.Unlock()
	o.Transport.Stop()
	o.cancel()
	o.set.mu.Lock()
	delete(o.set.running, o)
	o.set.mu.Unlock()
	close(o.ended)
}

// Step reports the current step to the caller.
func (o *Operation) Step(kind toolv1.StepKind, message string, objects ...*toolv1.ObjectRef) {
	o.Log.Debug("step", "step", kind.String(), "detail", message)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.send == nil {
		return
	}
	if err := o.send(&toolv1.Step{Kind: kind, Message: message, Objects: objects}); err != nil {
		// The stream is closed, which also cancels the context of the operation.
		o.send = nil
	}
}

// Remaining returns the time left for waits. It is never zero, which Helm replaces with a default.
func (o *Operation) Remaining() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(time.Until(o.deadline), time.Millisecond)
}

// Timeout returns the time limit of the waits.
func (o *Operation) Timeout() time.Duration { return o.timeout }

// ResetDeadline restarts the time limit of the waits, for the rollback after a failure.
func (o *Operation) ResetDeadline() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = time.Now().Add(o.timeout)
}
