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

func TestCancelReturnsAfterTheEnd(t *testing.T) {
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
		t.Fatal("the operation was running")
	}
	if !ended.Load() {
		t.Fatal("Cancel returned before the operation had ended")
	}
	if got := failure.Classify(<-result).Category; got != failure.Cancelled {
		t.Fatalf("got %v", got)
	}
	if other.Context().Err() != nil {
		t.Fatal("another operation was cancelled too")
	}
}

func TestCancelOfWhatDoesNotRun(t *testing.T) {
	set := NewSet()
	nameless := begin(t, set, "")
	defer nameless.End()
	for _, id := range []string{"", "unknown"} {
		if set.Cancel(context.Background(), id) {
			t.Fatalf("%q was not running", id)
		}
	}
	if errors.Is(nameless.Context().Err(), context.Canceled) {
		t.Fatal("an operation without identity was cancelled")
	}
}
