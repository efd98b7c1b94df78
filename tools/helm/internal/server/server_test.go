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

func TestARequestWithoutATargetIsRefused(t *testing.T) {
	server := New("test", operation.NewSet(), nil, slog.New(slog.DiscardHandler))
	answer, err := server.Observe(context.Background(), &toolv1.ObserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.GetFailure(); got.GetCategory() != failure.Internal || got.GetMessage() != "the request names no target" {
		t.Fatalf("got %v", answer)
	}
}

func TestRecovered(t *testing.T) {
	call := func() (err error) {
		defer recovered(slog.New(slog.DiscardHandler), &err)
		panic("defect")
	}
	if err := call(); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "the driver has a defect: defect") {
		t.Fatalf("got %v", err)
	}
}
