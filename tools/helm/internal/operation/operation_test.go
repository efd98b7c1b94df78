package operation

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"chandler.dev/tools/helm/internal/failure"
)

func begin(t *testing.T, set *Set, id string) *Operation {
	t.Helper()
	operation, err := set.Begin(context.Background(), Options{
		ID:             id,
		Base:           http.DefaultTransport,
		RequestTimeout: time.Second,
		Timeout:        time.Minute,
		Log:            slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return operation
}

func TestCancelReturnsAfterTheOperationHasEnded(t *testing.T) {
	set := NewSet()
	operation, other := begin(t, set, "a"), begin(t, set, "b")
	defer other.End()
	var ended atomic.Bool
	result := make(chan error, 1)
	go func() {
		err := operation.Run(func() error {
			<-operation.Context().Done()
			time.Sleep(50 * time.Millisecond)
			return ErrStopped
		})
		ended.Store(true)
		operation.End()
		result <- err
	}()
	if !set.Cancel(context.Background(), "a") {
		t.Fatal("Cancel reported that the operation was not running")
	}
	if !ended.Load() {
		t.Fatal("Cancel returned before the operation had ended")
	}
	if got := failure.Classify(<-result).Category; got != failure.Cancelled {
		t.Fatalf("got %v", got)
	}
	if other.Context().Err() != nil {
		t.Fatal("another operation was canceled too")
	}
}

func TestCancelOfUnknownOperation(t *testing.T) {
	set := NewSet()
	withoutID := begin(t, set, "")
	defer withoutID.End()
	for _, id := range []string{"", "unknown"} {
		if set.Cancel(context.Background(), id) {
			t.Fatalf("Cancel reported that %q was running", id)
		}
	}
	if errors.Is(withoutID.Context().Err(), context.Canceled) {
		t.Fatal("an operation without ID was canceled")
	}
}
