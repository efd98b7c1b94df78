package server

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Recovery keeps a defect that shows in one call from ending the calls of all other clusters.
func Recovery(log *slog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
			defer recovered(log, &err)
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer recovered(log, &err)
			return handle(server, stream)
		}),
	}
}

func recovered(log *slog.Logger, err *error) {
	if reason := recover(); reason != nil {
		log.Error("a call panicked", "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the driver has a defect: %v", reason)
	}
}
