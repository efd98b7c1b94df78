//! Traces: what one look at an object led to, through the package tool down to the requests it made. Off unless
//! started, and then without cost.

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

/// How long the last spans may take to leave when the process ends.
const PARTING: Duration = Duration::from_secs(2);
/// A receiver that does not answer is given up on, and its spans with it.
const PATIENCE: Duration = Duration::from_secs(5);

static ON: AtomicBool = AtomicBool::new(false);

/// Where spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Of an OTLP receiver over gRPC, such as `http://collector:4317`.
    pub endpoint: String,
    /// The part of traces that is kept, from 0 to 1.
    pub ratio: f64,
}

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to {endpoint}: {reason}; name a gRPC endpoint such as http://collector:4317")]
pub struct TraceError {
    endpoint: String,
    reason: String,
}

/// Spans are sent while this lives.
#[derive(Debug)]
pub struct Tracing(SdkTracerProvider);

impl Tracing {
    /// Starts to send spans of `service`. Needs a Tokio runtime around it.
    pub fn start(service: &'static str, options: &TraceOptions) -> Result<Self, TraceError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&options.endpoint)
            .with_timeout(PATIENCE)
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
        ON.store(true, Ordering::Release);
        Ok(Self(provider))
    }

    /// Sends what is left, for a moment.
    pub fn end(self) -> OTelSdkResult {
        ON.store(false, Ordering::Release);
        self.0.shutdown_with_timeout(PARTING)
    }
}

/// A span to come.
#[derive(Debug)]
pub struct Span {
    name: &'static str,
    attributes: Vec<KeyValue>,
    parent: Option<Parent>,
}

/// A span that others may belong to, also after it has ended.
#[derive(Clone, Debug)]
pub struct Parent(Context);

impl Span {
    /// A span below the one that is current. None: nobody wants to know.
    pub fn new(name: &'static str) -> Option<Self> {
        ON.load(Ordering::Acquire).then(|| Self { name, attributes: Vec::new(), parent: None })
    }

    /// Never a value, a credential or a query: whoever may read traces need not be trusted with those.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push(KeyValue::new(key, value.into()));
        self
    }

    #[must_use]
    pub fn below(self, parent: Option<Parent>) -> Self {
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

/// Runs `work` within a span, if there is one.
pub async fn within<F: Future>(span: Option<Span>, work: F) -> F::Output {
    let Some(span) = span else { return work.await };
    let context = span.start();
    let output = work.with_context(context.clone()).await;
    context.span().end();
    output
}

/// The current span, for what it leads to later. None: nobody wants to know.
pub fn current() -> Option<Parent> {
    ON.load(Ordering::Acquire).then(|| Parent(Context::current()))
}

/// Says of the current span that it failed, by category: messages may name more than a trace should.
pub fn failed(category: &'static str) {
    if ON.load(Ordering::Acquire) {
        Context::map_current(|context| context.span().set_status(Status::error(category)));
    }
}

/// What another process needs to continue the current trace: headers of W3C trace context.
pub fn carry(mut header: impl FnMut(&str, String)) {
    struct Headers<'a>(&'a mut dyn FnMut(&str, String));
    impl Injector for Headers<'_> {
        fn set(&mut self, key: &str, value: String) {
            (self.0)(key, value);
        }
    }
    if ON.load(Ordering::Acquire) {
        TraceContextPropagator::new().inject(&mut Headers(&mut header));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_carried_unless_traces_are_wanted() {
        assert!(Span::new("reconcile").is_none() && current().is_none());
        let answer = within(Span::new("reconcile"), async {
            carry(|_, _| panic!("nobody asked for traces"));
            7
        });
        assert_eq!(answer.await, 7);
    }
}
