//! OpenTelemetry traces: from the reconcile of an object through the package tool to the requests that it sends. Disabled,
//! and without cost, until [`Tracing::start`].

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue,
    global::{self, BoxedTracer},
    propagation::{Injector, TextMapPropagator as _},
    trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};

/// Limit for the export of the last spans when the process ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of one export. Spans that are not exported in time are dropped.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Where and how many spans are exported.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// URL of an OTLP receiver over gRPC, such as `http://collector:4317`.
    pub endpoint: String,
    /// The fraction of traces that is sampled, from 0 to 1.
    pub ratio: f64,
}

/// Tracing cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to {endpoint}: {reason}; name a gRPC endpoint such as http://collector:4317")]
pub struct TraceError {
    endpoint: String,
    reason: String,
}

/// The running export of spans.
#[derive(Debug)]
pub struct Tracing(SdkTracerProvider);

impl Tracing {
    /// Starts the export of the spans of `service`. Must be called within a Tokio runtime.
    pub fn start(service: &'static str, options: &TraceOptions) -> Result<Self, TraceError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&options.endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| TraceError { endpoint: options.endpoint.clone(), reason: error.to_string() })?;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.ratio)));
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource)
            .build();
        global::set_tracer_provider(provider.clone());
        ENABLED.store(true, Ordering::Release);
        Ok(Self(provider))
    }

    /// Exports the remaining spans and stops.
    pub fn end(self) -> OTelSdkResult {
        ENABLED.store(false, Ordering::Release);
        self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT)
    }
}

/// A span that is not started yet.
#[derive(Debug)]
pub struct Span {
    name: &'static str,
    attributes: Vec<KeyValue>,
    parent: Option<ParentSpan>,
}

/// A span that can have children, even after it ends.
#[derive(Clone, Debug)]
pub struct ParentSpan(Context);

impl Span {
    /// Creates a child of the current span. Returns `None` if tracing is disabled.
    pub fn new(name: &'static str) -> Option<Self> {
        ENABLED.load(Ordering::Acquire).then(|| Self { name, attributes: Vec::new(), parent: None })
    }

    /// Adds an attribute. It must not contain Helm values, credentials or URL queries: readers of traces may not be allowed to
    /// see them.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push(KeyValue::new(key, value.into()));
        self
    }

    /// Sets the parent. `None` means the current span.
    #[must_use]
    pub fn child_of(self, parent: Option<ParentSpan>) -> Self {
        Self { parent, ..self }
    }

    fn start(self) -> Context {
        let tracer: BoxedTracer = global::tracer("chandler");
        let parent = self.parent.map_or_else(Context::current, |parent| parent.0);
        let builder = tracer.span_builder(self.name).with_kind(SpanKind::Internal);
        let span = tracer.build_with_context(builder.with_attributes(self.attributes), &parent);
        parent.with_span(span)
    }
}

/// Runs `work` in `span`, if there is one.
pub async fn in_span<F: Future>(span: Option<Span>, work: F) -> F::Output {
    let Some(span) = span else { return work.await };
    let context = span.start();
    let output = work.with_context(context.clone()).await;
    context.span().end();
    output
}

/// Returns the current span as a parent for later spans, or `None` if tracing is disabled.
pub fn current() -> Option<ParentSpan> {
    ENABLED.load(Ordering::Acquire).then(|| ParentSpan(Context::current()))
}

/// Marks the current span as failed. Only the category is recorded, because messages may contain confidential data.
pub fn record_failure(category: &'static str) {
    if ENABLED.load(Ordering::Acquire) {
        Context::map_current(|context| context.span().set_status(Status::error(category)));
    }
}

/// Calls `header` with each W3C trace context header, so that another process can continue the current trace.
pub fn inject_headers(mut header: impl FnMut(&str, String)) {
    struct Headers<'a>(&'a mut dyn FnMut(&str, String));
    impl Injector for Headers<'_> {
        fn set(&mut self, key: &str, value: String) {
            (self.0)(key, value);
        }
    }
    if ENABLED.load(Ordering::Acquire) {
        TraceContextPropagator::new().inject(&mut Headers(&mut header));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_headers_are_injected_while_tracing_is_disabled() {
        assert!(Span::new("reconcile").is_none() && current().is_none());
        let output = in_span(Span::new("reconcile"), async {
            inject_headers(|_, _| panic!("tracing is disabled"));
            7
        });
        assert_eq!(output.await, 7);
    }
}
