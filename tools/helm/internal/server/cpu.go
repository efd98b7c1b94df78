package server

import (
	"context"

	"google.golang.org/grpc"

	"chandler.dev/tools/helm/internal/cpulimit"
)

// LimitCPU returns an interceptor that limits the CPU time of calls that are not operations. Operations have the same limit.
func LimitCPU(limit *cpulimit.Limit) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
			limit.Run(func() { response, err = handle(ctx, request) })
			return response, err
		})
}
