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

// endpoint is the variable by which the owner says where spans go.
const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Tracing sends spans of calls that belong to a trace of the caller's. Nil: nobody wants them.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// StartTracing begins to send spans if the environment names a receiver.
func StartTracing(ctx context.Context, version string) (*Tracing, error) {
	if os.Getenv(endpoint) == "" {
		return nil, nil //nolint:nilnil // nobody wants them
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
		// The caller has decided what is kept, and begins every trace.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "chandler-helm"),
			attribute.String("service.version", version),
		)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer("chandler-helm")}
}

// End sends what is left, for as long as limit.
func (t *Tracing) End(limit time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// What does not leave in time is lost with the process.
	_ = t.provider.Shutdown(ctx)
}

// Errors makes fn hear of spans that could not be sent.
func Errors(fn func(error)) { otel.SetErrorHandler(otel.ErrorHandlerFunc(fn)) }

// Interceptors make a span of every call.
func (t *Tracing) Interceptors() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			ctx, span := t.begin(ctx, info.FullMethod)
			defer span.End()
			return handle(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			ctx, span := t.begin(stream.Context(), info.FullMethod)
			defer span.End()
			return handle(server, within{ServerStream: stream, ctx: ctx})
		}),
	}
}

func (t *Tracing) begin(ctx context.Context, method string) (context.Context, trace.Span) {
	headers, _ := metadata.FromIncomingContext(ctx)
	ctx = propagation.TraceContext{}.Extract(ctx, carrier(headers))
	return t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
}

// within is a stream whose context knows its span.
type within struct {
	grpc.ServerStream
	ctx context.Context
}

func (w within) Context() context.Context { return w.ctx }

// carrier reads trace context from a call's metadata.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// Failed says of the current span that it failed, by category: messages may name more than a trace should.
func Failed(ctx context.Context, category string) {
	trace.SpanFromContext(ctx).SetStatus(codes.Error, category)
}

// Requests makes a span of every request that goes through base, below the span of ctx: Helm's own contexts know none.
func (t *Tracing) Requests(ctx context.Context, base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return tracing{tracer: t.tracer, call: ctx, base: base}
}

type tracing struct {
	tracer trace.Tracer
	call   context.Context
	base   http.RoundTripper
}

func (t tracing) RoundTrip(request *http.Request) (*http.Response, error) {
	// Neither query nor headers nor bodies: they may hold values and credentials.
	_, span := t.tracer.Start(t.call, request.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", request.Method),
		attribute.String("server.address", request.URL.Host),
		attribute.String("url.path", request.URL.Path),
	))
	defer span.End()
	response, err := t.base.RoundTrip(request)
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return response, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
	if response.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, result(response.StatusCode))
	}
	return response, nil
}
