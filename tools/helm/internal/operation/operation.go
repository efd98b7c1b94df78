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
	"chandler.dev/tools/helm/internal/failure"
)

const (
	// DefaultTimeout limits an operation that names no limit.
	DefaultTimeout = 10 * time.Minute
	// DefaultRequestTimeout limits a request of a target that names no limit.
	DefaultRequestTimeout = 30 * time.Second
	// patience is how long a stopped operation may take to notice. It can send nothing, so only a template that
	// never ends could use it up.
	patience = 30 * time.Second
)

// Set knows the running operations of the process.
type Set struct {
	mu      sync.Mutex
	running map[*Operation]struct{}
	stopped bool
}

// NewSet makes an empty set.
func NewSet() *Set { return &Set{running: map[*Operation]struct{}{}} }

// Running counts the operations.
func (s *Set) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// StopAll makes every transport refuse further requests, for good. The process is about to exit.
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
		wait.Go(operation.Guard.Stop)
	}
	wait.Wait()
}

// Cancel stops the operation of this identity, and returns when it has ended or the caller is gone. It says whether
// there was one.
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

// Options describe an operation.
type Options struct {
	// ID is by which it can be cancelled. Empty: it cannot.
	ID   string
	Base http.RoundTripper
	// RequestTimeout limits one request.
	RequestTimeout time.Duration
	// Timeout limits the waits; the operation as a whole gets as much again as it may need to record its failure.
	Timeout time.Duration
	// Rollback says that a failure is followed by a way back, which gets a Timeout of its own.
	Rollback bool
	// Send delivers a step to the caller. Nil: steps are dropped.
	Send func(*toolv1.Step) error
	Log  *slog.Logger
}

// Operation is one running call.
type Operation struct {
	Guard *Guard
	Log   *slog.Logger

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

// recording is what an operation may take beyond its waits, to tell the cluster how it ended.
const recording = time.Minute

// Begin starts an operation; whoever begins it must End it.
func (s *Set) Begin(ctx context.Context, options Options) (*Operation, error) {
	limit := options.Timeout + recording
	if options.Rollback {
		limit += options.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	operation := &Operation{
		Guard:    NewGuard(options.Base, options.RequestTimeout),
		Log:      options.Log,
		id:       options.ID,
		set:      s,
		ctx:      ctx,
		cancel:   cancel,
		ended:    make(chan struct{}),
		send:     options.Send,
		timeout:  options.Timeout,
		deadline: time.Now().Add(options.Timeout),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		cancel()
		return nil, failure.New(failure.Cancelled, "the driver is shutting down")
	}
	s.running[operation] = struct{}{}
	return operation, nil
}

// Context ends when the operation is cancelled or its time is over.
func (o *Operation) Context() context.Context { return o.ctx }

// Run does the work and returns when it has ended. After cancellation the work fails at its next request, which its
// transport refuses, and so it ends soon.
func (o *Operation) Run(work func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if reason := recover(); reason != nil {
				o.Log.Error("the operation panicked", "stack", string(debug.Stack()))
				done <- failure.New(failure.Internal, "the driver has a defect: %v", reason)
			}
		}()
		done <- work()
	}()
	select {
	case err := <-done:
		return o.verdict(err)
	case <-o.ctx.Done():
	}
	o.Guard.Stop()
	select {
	case err := <-done:
		return o.verdict(err)
	case <-time.After(patience):
		o.Log.Error("the operation does not end; its requests are refused")
		return o.verdict(o.ctx.Err())
	}
}

// verdict prefers the reason for the stop over what the stop made fail.
func (o *Operation) verdict(err error) error {
	if err == nil {
		return nil
	}
	switch ctxErr := o.ctx.Err(); {
	case ctxErr == nil && errors.Is(err, ErrStopped):
		return failure.Wrap(failure.Cancelled, err, "the driver is shutting down")
	case errors.Is(ctxErr, context.DeadlineExceeded):
		return failure.Wrap(failure.Timeout, err, "the operation did not end in time%s", after(err))
	case ctxErr != nil:
		return failure.Wrap(failure.Cancelled, err, "the operation was cancelled")
	}
	return err
}

func after(err error) string {
	if errors.Is(err, ErrStopped) || errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return fmt.Sprintf("; last: %v", err)
}

// End stops the transport and forgets the operation: nothing leaves after it.
func (o *Operation) End() {
	o.mu.Lock()
	o.send = nil
	o.mu.Unlock()
	o.Guard.Stop()
	o.cancel()
	o.set.mu.Lock()
	delete(o.set.running, o)
	o.set.mu.Unlock()
	close(o.ended)
}

// Step tells the caller what the operation does now.
func (o *Operation) Step(kind toolv1.StepKind, message string, objects ...*toolv1.ObjectRef) {
	o.Log.Debug("step", "step", kind.String(), "detail", message)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.send == nil {
		return
	}
	if err := o.send(&toolv1.Step{Kind: kind, Message: message, Objects: objects}); err != nil {
		// The caller is gone; its context says so too, and stops the operation.
		o.send = nil
	}
}

// Remaining is the time left for waits, never less than an instant: zero means a default to Helm.
func (o *Operation) Remaining() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(time.Until(o.deadline), time.Millisecond)
}

// Timeout is the time that the operation had for its waits.
func (o *Operation) Timeout() time.Duration { return o.timeout }

// Renew gives the waits their full time again: the way back after a failure.
func (o *Operation) Renew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = time.Now().Add(o.timeout)
}
