package server

import (
	"context"
	"log/slog"
	"testing"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/operation"
)

func TestARequestWithoutATargetIsRefused(t *testing.T) {
	server := New("test", operation.NewSet(), nil, slog.New(slog.DiscardHandler))
	answer, err := server.Observe(context.Background(), &toolv1.ObserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetFailure().GetMessage() == "" {
		t.Fatalf("got %v", answer)
	}
}

func TestRecovered(t *testing.T) {
	call := func() (err error) {
		defer recovered(slog.New(slog.DiscardHandler), &err)
		panic("defect")
	}
	if err := call(); err == nil {
		t.Fatal("the panic is lost")
	}
}
