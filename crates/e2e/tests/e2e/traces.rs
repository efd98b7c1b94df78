//! An install is one trace, from the reconcile down to the requests of the package tool.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use serde_json::json;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// A value that must not appear in a trace.
const SECRET: &str = "correct-horse-battery";

/// A collector that stores the spans it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts the server. Returns its address.
    fn serve(&self) -> String {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let router = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(incoming));
        format!("http://{address}")
    }

    /// Returns the child spans of a span.
    fn children(&self, parent: &Span) -> Vec<Span> {
        let all = self.0.lock().unwrap();
        let below = |span: &&Span| span.parent_span_id == parent.span_id && span.trace_id == parent.trace_id;
        all.iter().filter(below).cloned().collect()
    }

    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }

    /// Follows the trace reconcile → operation → call → requests of an install. Returns the names of the requests.
    fn install_requests(&self) -> Option<Vec<String>> {
        let install = self
            .named("operation")
            .into_iter()
            .find(|span| has_attribute(span, "chandler.operation", "install"))?;
        let mut reconciles = self.named("reconcile").into_iter();
        let reconcile = reconciles.find(|reconcile| reconcile.span_id == install.parent_span_id)?;
        assert!(has_attribute(&reconcile, "chandler.kind", "HelmReleaseProxy"), "{reconcile:#?}");
        assert!(reconcile.parent_span_id.is_empty(), "a reconcile is the root of its trace");
        let call = self.children(&install).pop()?;
        assert_eq!(call.name, "/chandler.tool.v1.PackageTool/Apply");
        Some(self.children(&call).into_iter().map(|span| span.name).collect())
    }
}

fn has_attribute(span: &Span, key: &str, value: &str) -> bool {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    found.is_some_and(|attribute| format!("{:?}", attribute.value).contains(&format!("\"{value}\"")))
}

/// Stops a manager. Returns how long it took.
async fn stop(manager: Manager) -> Duration {
    let start = Instant::now();
    manager.stop_within(Duration::from_mins(1)).await;
    start.elapsed()
}

#[tokio::test]
async fn an_install_is_one_trace_and_an_unreachable_collector_does_no_harm() {
    let world = World::new("traces").await;
    world.create_cluster("alpha").await;
    let collector = Collector::default();
    let endpoint = collector.serve();
    let manager = world.start_manager_with(&["--otlp-endpoint", &endpoint]);
    world.apply_placement("hello", "hello", json!({"valuesTemplate": format!("greeting: {SECRET}")})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let requests = eventually("the whole trace is received", || async {
        collector.install_requests().filter(|requests| requests.iter().any(|name| name == "PATCH"))
    })
    .await;
    assert!(requests.iter().any(|name| name == "GET"), "{requests:?}");
    for span in collector.0.lock().unwrap().iter() {
        let text = format!("{span:?}");
        assert!(!text.contains(SECRET) && !text.contains("fieldValidation"), "{text}");
    }
    let usual = stop(manager).await;

    let manager = world.start_manager_with(&["--otlp-endpoint", "http://127.0.0.1:1"]);
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: moin"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    let stopped = stop(manager).await;
    assert!(
        stopped < usual + Duration::from_secs(8),
        "the manager stops although it cannot export its spans: after {stopped:?}, usually {usual:?}"
    );
}
