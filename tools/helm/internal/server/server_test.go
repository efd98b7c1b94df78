package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
)

func TestRequestWithoutTargetFails(t *testing.T) {
	server := New("test", operation.NewSet(), nil, slog.New(slog.DiscardHandler))
	response, err := server.Observe(context.Background(), &toolv1.ObserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := response.GetFailure(); got.GetCategory() != failure.Internal || got.GetMessage() != "the request has no target" {
		t.Fatalf("got %v", response)
	}
}

func TestRecoverPanic(t *testing.T) {
	call := func() (err error) {
		defer recoverPanic(slog.New(slog.DiscardHandler), &err)
		panic("boom")
	}
	if err := call(); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "the Helm driver panicked: boom") {
		t.Fatalf("got %v", err)
	}
}
