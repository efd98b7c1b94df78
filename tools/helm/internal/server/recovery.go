package server

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Recovery returns interceptors that recover from panics, so that one call cannot end the calls for other clusters.
func Recovery(log *slog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
			defer recoverPanic(log, &err)
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer recoverPanic(log, &err)
			return handle(server, stream)
		}),
	}
}

func recoverPanic(log *slog.Logger, err *error) {
	if reason := recover(); reason != nil {
		log.Error("a call panicked", "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the Helm driver panicked: %v", reason)
	}
}
