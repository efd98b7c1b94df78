package telemetry

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func request() *http.Request {
	request := httptest.NewRequest(http.MethodPatch, "https://cluster.example/api/v1/secrets/a?token=hidden", strings.NewReader("hidden"))
	request.Header.Set("Authorization", "Bearer hidden")
	return request
}

func TestRequestsBelongToTheTraceOfTheCallAndTellNoSecrets(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.WithSyncer(spans), "test")
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("traceparent", parent))
	ctx, call := tracing.begin(ctx, "Apply")
	_, _ = tracing.Requests(ctx, answer{status: 409}).RoundTrip(request()) //nolint:bodyclose // there is none
	call.End()
	ended := spans.GetSpans()
	if len(ended) != 2 {
		t.Fatalf("got %d spans", len(ended))
	}
	sent, call2 := ended[0], ended[1]
	if sent.Parent.SpanID() != call2.SpanContext.SpanID() || call2.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the spans do not belong together: %v", ended)
	}
	if sent.Status.Description != "conflict" {
		t.Errorf("got status %v", sent.Status)
	}
	got := map[string]string{}
	for _, attribute := range sent.Attributes {
		got[string(attribute.Key)] = attribute.Value.String()
	}
	want := map[string]string{
		"http.request.method": "PATCH", "server.address": "cluster.example", "url.path": "/api/v1/secrets/a",
		"http.response.status_code": "409",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestACallWithoutATraceMakesNoSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.WithSyncer(spans), "test")
	_, call := tracing.begin(context.Background(), "Describe")
	call.End()
	if ended := spans.GetSpans(); len(ended) != 0 {
		t.Errorf("got %v", ended)
	}
	if base := (answer{}); (*Tracing)(nil).Requests(context.Background(), base) != http.RoundTripper(base) {
		t.Error("nobody wants spans")
	}
}
