package operation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chandler.dev/tools/helm/internal/failure"
)

func TestNoRequestIsSentAfterTheLeaseHasExpired(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	lease := NewLease()
	transport := NewTransport(http.DefaultTransport, time.Minute, lease)
	request := func() error {
		response, err := get(t, transport, server.URL)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	steps := []struct {
		name  string
		until func() time.Duration
		want  error
	}{
		{"no limit", nil, nil},
		{"held", func() time.Duration { return BootTime() + time.Minute }, nil},
		{"expired", BootTime, ErrLeaseExpired},
		{"held again", func() time.Duration { return BootTime() + time.Minute }, nil},
	}
	for _, step := range steps {
		if step.until != nil {
			lease.SetUntil(step.until())
		}
		if err := request(); !errors.Is(err, step.want) {
			t.Fatalf("%s: got %v, want %v", step.name, err, step.want)
		}
	}
	if served.Load() != 3 {
		t.Fatalf("%d requests arrived", served.Load())
	}
}

func TestRequestsInFlightAreAbortedWhenTheLeaseExpires(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if IsStream(r) {
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	for name, query := range map[string]string{"request": "", "watch": "?watch=true"} {
		t.Run(name, func(t *testing.T) {
			lease := NewLease()
			transport := NewTransport(http.DefaultTransport, time.Minute, lease)
			transport.drainTimeout = 30 * time.Second
			lease.SetUntil(BootTime() + 100*time.Millisecond)
			started := time.Now()
			response, err := get(t, transport, server.URL+query)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			if !errors.Is(err, ErrLeaseExpired) {
				t.Fatalf("got %v", err)
			}
			if took := time.Since(started); took > transport.drainTimeout {
				t.Fatalf("the request ended after %s", took)
			}
		})
	}
}

func TestRenewedLeaseKeepsRequestsInFlight(t *testing.T) {
	renewed := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-renewed
		time.Sleep(2200 * time.Millisecond)
	}))
	defer server.Close()
	lease := NewLease()
	transport := NewTransport(http.DefaultTransport, time.Minute, lease)
	lease.SetUntil(BootTime() + 2*time.Second)
	ended := make(chan error, 1)
	go func() {
		response, err := get(t, transport, server.URL)
		if err == nil {
			err = response.Body.Close()
		}
		ended <- err
	}()
	lease.SetUntil(BootTime() + time.Minute)
	close(renewed)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestOperationsEndWhenTheLeaseExpires(t *testing.T) {
	set := NewSet()
	operation := begin(t, set, "a")
	set.Lease.SetUntil(BootTime() + 50*time.Millisecond)
	err := operation.Run(func() error {
		<-operation.Context().Done()
		return operation.Context().Err()
	})
	operation.End()
	checkLeaseFailure(t, err)
	_, err = set.Begin(context.Background(), Options{Base: http.DefaultTransport, Log: slog.New(slog.DiscardHandler)})
	checkLeaseFailure(t, err)
}

func checkLeaseFailure(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("no failure")
	}
	got := failure.Classify(err)
	if got.Category != failure.Cancelled || !strings.Contains(got.Message, ErrLeaseExpired.Error()) {
		t.Fatalf("got %v: %s", got.Category, got.Message)
	}
}
