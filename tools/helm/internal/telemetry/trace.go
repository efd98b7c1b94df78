package telemetry

import (
	"context"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// endpointVariable is the environment variable with the endpoint of the OTLP collector.
const endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Tracing exports spans of calls that belong to a sampled trace of the caller. A nil Tracing exports nothing.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// StartTracing starts exporting spans. It returns nil if the environment sets no endpoint.
func StartTracing(ctx context.Context, version string) (*Tracing, error) {
	if os.Getenv(endpointVariable) == "" {
		return nil, nil //nolint:nilnil // a nil Tracing exports nothing
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, err
	}
	return newTracing(sdktrace.WithBatcher(exporter), version), nil
}

func newTracing(exporter sdktrace.TracerProviderOption, version string) *Tracing {
	provider := sdktrace.NewTracerProvider(
		exporter,
		// The caller starts every trace and decides whether it is sampled.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "chandler-helm"),
			attribute.String("service.version", version),
		)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer("chandler-helm")}
}

// Shutdown exports the remaining spans within timeout.
func (t *Tracing) Shutdown(timeout time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// Spans that cannot be exported in time are lost.
	_ = t.provider.Shutdown(ctx)
}

// SetErrorHandler sets the function that is called if spans cannot be exported.
func SetErrorHandler(fn func(error)) { otel.SetErrorHandler(otel.ErrorHandlerFunc(fn)) }

// ServerOptions returns interceptors that create a span for every call.
func (t *Tracing) ServerOptions() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			ctx, span := t.startSpan(ctx, info.FullMethod)
			defer span.End()
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			ctx, span := t.startSpan(stream.Context(), info.FullMethod)
			defer span.End()
			return handle(server, tracedStream{ServerStream: stream, ctx: ctx})
		}),
	}
}

func (t *Tracing) startSpan(ctx context.Context, method string) (context.Context, trace.Span) {
	headers, _ := metadata.FromIncomingContext(ctx)
	ctx = propagation.TraceContext{}.Extract(ctx, metadataCarrier(headers))
	return t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
}

// tracedStream is a stream with the span in its context.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s tracedStream) Context() context.Context { return s.ctx }

// metadataCarrier reads the trace context from the metadata of a call.
type metadataCarrier metadata.MD

func (c metadataCarrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c metadataCarrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c metadataCarrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// SetFailed marks the span of ctx as failed. It sets only the category, because messages may contain confidential
// details.
func SetFailed(ctx context.Context, category string) {
	trace.SpanFromContext(ctx).SetStatus(codes.Error, category)
}

// Transport returns a transport that creates a span for every request sent through base. The spans are children of the
// span of ctx, because Helm does not pass that context to its requests.
func (t *Tracing) Transport(ctx context.Context, base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return tracingTransport{tracer: t.tracer, call: ctx, base: base}
}

type tracingTransport struct {
	tracer trace.Tracer
	call   context.Context
	base   http.RoundTripper
}

func (t tracingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	// Query, headers and bodies are left out, because they may contain values and credentials.
	_, span := t.tracer.Start(t.call, request.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", request.Method),
		attribute.String("server.address", request.URL.Host),
		attribute.String("url.path", request.URL.Path),
	))
	defer span.End()
	response, err := t.base.RoundTrip(request)
	if err != nil {
		span.SetStatus(codes.Error, "no response")
		return response, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, result(response.StatusCode))
	}
	return response, nil
}
