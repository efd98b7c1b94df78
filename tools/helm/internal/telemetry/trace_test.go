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

func TestRequestSpansJoinTheTraceAndContainNoSecrets(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.WithSyncer(spans), "test")
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("traceparent", parent))
	ctx, call := tracing.startSpan(ctx, "Apply")
	_, _ = tracing.Transport(ctx, fakeTransport{status: 409}).RoundTrip(request()) //nolint:bodyclose // the response has no body
	call.End()
	ended := spans.GetSpans()
	if len(ended) != 2 {
		t.Fatalf("got %d spans", len(ended))
	}
	requestSpan, callSpan := ended[0], ended[1]
	if requestSpan.Parent.SpanID() != callSpan.SpanContext.SpanID() || callSpan.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("wrong parent span: %v", ended)
	}
	if requestSpan.Status.Description != "conflict" {
		t.Errorf("got status %v", requestSpan.Status)
	}
	got := map[string]string{}
	for _, attribute := range requestSpan.Attributes {
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

func TestCallWithoutTraceCreatesNoSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracing := newTracing(sdktrace.WithSyncer(spans), "test")
	_, call := tracing.startSpan(context.Background(), "Describe")
	call.End()
	if ended := spans.GetSpans(); len(ended) != 0 {
		t.Errorf("got %v", ended)
	}
	if base := (fakeTransport{}); (*Tracing)(nil).Transport(context.Background(), base) != http.RoundTripper(base) {
		t.Error("a nil Tracing wraps the transport")
	}
}
