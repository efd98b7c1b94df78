package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
	"chandler.dev/tools/helm/internal/redact"
	"chandler.dev/tools/helm/internal/release"
	"chandler.dev/tools/helm/internal/telemetry"
	"chandler.dev/tools/helm/internal/values"
)

// call describes one Apply, Rollback, Compare, Test, Remove, Observe or Render.
type call struct {
	kind     string
	id       string
	target   *toolv1.Target
	release  *toolv1.Release
	timeout  time.Duration
	rollback bool
	// readOnly is set if the call must not change anything.
	readOnly bool
	send     func(*toolv1.Step) error
	// inputDigest identifies the revision of an Apply or a Rollback.
	inputDigest string
	// onStart, if set, reports to the caller that the operation runs and can be canceled.
	onStart func() error
}

// operationRequest is a request for an operation on a release.
type operationRequest interface {
	GetOperationId() string
	GetTarget() *toolv1.Target
	GetRelease() *toolv1.Release
}

// newCall returns the call of an operation that reports its steps to a stream.
func newCall(kind string, request operationRequest, timeout *durationpb.Duration, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) call {
	return call{
		kind:    kind,
		id:      request.GetOperationId(),
		target:  request.GetTarget(),
		release: request.GetRelease(),
		timeout: durationOr(timeout, operation.DefaultTimeout),
		send:    stepSender(stream),
		onStart: headerSender(stream),
	}
}

// outcome is the result of a call. If neither state nor err is set, the release does not exist.
type outcome struct {
	state *toolv1.ReleaseState
	// unchanged is set if Apply changed nothing, or if Rollback created no revision.
	unchanged bool
	// ignoredFields are the fields that Apply or Rollback left to other field managers.
	ignoredFields []string
	// comparison is the result of Compare, and tests that of Test.
	comparison *toolv1.Comparison
	tests      *toolv1.TestReport
	err        error
	// stateAfterFailure is the state of the release after a failure, if known.
	stateAfterFailure *toolv1.ReleaseState
	// secrets are the strings in the values, which are redacted in messages.
	secrets []string
}

// Apply installs or upgrades a release.
func (s *Server) Apply(request *toolv1.ApplyRequest, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) error {
	var (
		secrets []string
		applied release.ApplyResult
	)
	call := newCall("apply", request, request.GetOptions().GetTimeout(), stream)
	call.rollback, call.inputDigest = request.GetOptions().GetAtomic(), request.GetInputDigest()
	result := s.run(stream.Context(), call, func(opened *release.Release) (*toolv1.ReleaseState, error) {
		merged, err := values.Merge(request.GetValues())
		if err != nil {
			return nil, err
		}
		secrets = redact.Strings(merged)
		spec := release.ApplySpec{
			Values:      merged,
			Action:      request.GetAction(),
			Options:     request.GetOptions(),
			InputDigest: request.GetInputDigest(),
			Recover:     request.GetRecover(),
		}
		if err := s.load(request.GetPackage(), &spec); err != nil {
			return nil, err
		}
		applied, err = opened.Apply(spec)
		return applied.State, err
	})
	result.secrets, result.unchanged, result.ignoredFields = secrets, applied.Unchanged, applied.IgnoredFields
	return stream.Send(result.event())
}

// Rollback rolls a release back to an earlier revision.
func (s *Server) Rollback(request *toolv1.RollbackRequest, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) error {
	var rolledBack release.RollbackResult
	call := newCall("rollback", request, request.GetOptions().GetTimeout(), stream)
	call.inputDigest = request.GetInputDigest()
	result := s.run(stream.Context(), call, func(opened *release.Release) (_ *toolv1.ReleaseState, err error) {
		rolledBack, err = opened.Rollback(release.RollbackSpec{
			Revision:         int(request.GetRevision()),
			Options:          request.GetOptions(),
			InputDigest:      request.GetInputDigest(),
			RolledBackDigest: request.GetRolledBackDigest(),
			Recover:          request.GetRecover(),
			RollBackDeployed: request.GetRollBackDeployed(),
		})
		return rolledBack.State, err
	})
	result.secrets = redact.Strings(rolledBack.Values)
	result.unchanged, result.ignoredFields = rolledBack.Unchanged, rolledBack.IgnoredFields
	return stream.Send(result.event())
}

// Remove uninstalls a release.
func (s *Server) Remove(request *toolv1.RemoveRequest, stream grpc.ServerStreamingServer[toolv1.OperationEvent]) error {
	call := newCall("remove", request, request.GetOptions().GetTimeout(), stream)
	result := s.run(stream.Context(), call, func(opened *release.Release) (*toolv1.ReleaseState, error) {
		return opened.Remove(request.GetOptions())
	})
	return stream.Send(result.event())
}

// Cancel cancels an operation and returns when it has ended.
func (s *Server) Cancel(ctx context.Context, request *toolv1.CancelRequest) (*toolv1.CancelResponse, error) {
	return &toolv1.CancelResponse{WasRunning: s.operations.Cancel(ctx, request.GetOperationId())}, nil
}

// Observe reads the state of a release.
func (s *Server) Observe(ctx context.Context, request *toolv1.ObserveRequest) (*toolv1.ObserveResponse, error) {
	result := s.run(ctx, call{
		kind:    "observe",
		target:  request.GetTarget(),
		release: request.GetRelease(),
		timeout: operation.DefaultTimeout,
	}, func(opened *release.Release) (*toolv1.ReleaseState, error) {
		return opened.Observe(int(request.GetHistory()))
	})
	switch {
	case result.err != nil:
		return &toolv1.ObserveResponse{Outcome: &toolv1.ObserveResponse_Failure{Failure: failure.Proto(result.err)}}, nil
	case result.state == nil:
		return &toolv1.ObserveResponse{Outcome: &toolv1.ObserveResponse_Absent{Absent: &toolv1.ReleaseAbsent{}}}, nil
	default:
		return &toolv1.ObserveResponse{Outcome: &toolv1.ObserveResponse_State{State: result.state}}, nil
	}
}

// run runs work as an operation and returns when the operation has ended.
func (s *Server) run(ctx context.Context, call call, work func(*release.Release) (*toolv1.ReleaseState, error)) outcome {
	log := s.log.With(
		"operation", call.id,
		"cluster", call.target.GetCluster(),
		"namespace", call.release.GetNamespace(),
		"release", call.release.GetName(),
	)
	target, err := s.clusters.Get(call.target)
	if err != nil {
		return outcome{err: err}
	}
	running, err := s.operations.Begin(ctx, operation.Options{
		ID:             call.id,
		Base:           s.tracing.Transport(ctx, s.requests.Transport(target.Transport())),
		RequestTimeout: durationOr(call.target.GetRequestTimeout(), operation.DefaultRequestTimeout),
		Timeout:        call.timeout,
		Rollback:       call.rollback,
		ReadOnly:       call.readOnly,
		Send:           call.send,
		Log:            log,
	})
	if err != nil {
		return outcome{err: err}
	}
	defer running.End()
	if call.onStart != nil {
		if err := call.onStart(); err != nil {
			return outcome{err: err}
		}
	}

	started := time.Now()
	opened, err := release.Open(call.release, target.Session(running.Transport, call.target), running)
	if err != nil {
		return outcome{err: err}
	}
	var state *toolv1.ReleaseState
	err = running.Run(func() (err error) {
		state, err = work(opened)
		return err
	})
	took := time.Since(started)
	if err != nil {
		category := failure.Classify(err).Category
		telemetry.SetFailed(ctx, category.String())
		log.Warn(call.kind+" failed", "category", category.String(), "took", took.String())
		state := opened.CachedState()
		if pending := opened.PendingRevision(call.inputDigest); category == failure.Cancelled && pending != 0 {
			state = s.endPending(ctx, call, target, pending, log)
		}
		return outcome{err: err, stateAfterFailure: state}
	}
	switch call.kind {
	case "observe":
	case "compare", "test", "render":
		log.Debug(call.kind+" succeeded", "took", took.String())
	default:
		log.Info(call.kind+" succeeded", "revision", state.GetRevision(), "took", took.String())
	}
	return outcome{state: state}
}

// pendingTimeout is how long the last write of a canceled operation may take.
const pendingTimeout = 5 * time.Second

// endPending marks the revision that a canceled operation has left pending as failed, so that the next operation need not
// recover it, and returns the state of the release, or nil if it is unknown. It sends no request without the Lease.
func (s *Server) endPending(
	ctx context.Context, call call, target *cluster.Cluster, revision int, log *slog.Logger,
) *toolv1.ReleaseState {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pendingTimeout)
	defer cancel()
	running, err := s.operations.Begin(ctx, operation.Options{
		Base:           s.tracing.Transport(ctx, s.requests.Transport(target.Transport())),
		RequestTimeout: pendingTimeout,
		Timeout:        pendingTimeout,
		Log:            log,
	})
	if err != nil {
		return nil
	}
	defer running.End()
	opened, err := release.Open(call.release, target.Session(running.Transport, call.target), running)
	if err != nil {
		return nil
	}
	if err := running.Run(func() error { return opened.EndPending(revision) }); err != nil {
		log.Warn("the revision of the canceled operation stays pending", "error", err.Error())
		return nil
	}
	return opened.CachedState()
}

func (o outcome) event() *toolv1.OperationEvent {
	if o.err != nil {
		reported := failure.Proto(o.err, o.secrets...)
		reported.State = o.stateAfterFailure
		return &toolv1.OperationEvent{Event: &toolv1.OperationEvent_Failure{Failure: reported}}
	}
	result := &toolv1.OperationResult{Unchanged: o.unchanged, IgnoredFields: o.ignoredFields}
	switch {
	case o.comparison != nil:
		result.Outcome = &toolv1.OperationResult_Comparison{Comparison: o.comparison}
	case o.tests != nil:
		result.Outcome = &toolv1.OperationResult_Tests{Tests: o.tests}
	case o.state != nil:
		result.Outcome = &toolv1.OperationResult_State{State: o.state}
	default:
		result.Outcome = &toolv1.OperationResult_Absent{Absent: &toolv1.ReleaseAbsent{}}
	}
	return &toolv1.OperationEvent{Event: &toolv1.OperationEvent_Result{Result: result}}
}

// headerSender returns a function that sends the stream's header. Otherwise gRPC would send it with the first step,
// which follows the first response of the cluster.
func headerSender(stream grpc.ServerStreamingServer[toolv1.OperationEvent]) func() error {
	return func() error { return stream.SendHeader(metadata.MD{}) }
}

func stepSender(stream grpc.ServerStreamingServer[toolv1.OperationEvent]) func(*toolv1.Step) error {
	return func(step *toolv1.Step) error {
		return stream.Send(&toolv1.OperationEvent{Event: &toolv1.OperationEvent_Step{Step: step}})
	}
}
