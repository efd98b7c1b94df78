//! One install is one trace, from the look at its object down to the requests of the package tool.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chandler_e2e::{wait::eventually, world::World};
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

/// What nobody may read in a trace.
const SECRET: &str = "correct-horse-battery";

/// Takes in spans.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
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

impl Receiver {
    /// Serves for as long as the test runs.
    fn serve(&self) -> String {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let router = Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(incoming));
        format!("http://{address}")
    }

    /// The spans below one.
    fn children(&self, parent: &Span) -> Vec<Span> {
        let all = self.0.lock().unwrap();
        let below = |span: &&Span| span.parent_span_id == parent.span_id && span.trace_id == parent.trace_id;
        all.iter().filter(below).cloned().collect()
    }

    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }

    /// Reconcile → operation → call → requests: the names of the last.
    fn requests_of_an_install(&self) -> Option<Vec<String>> {
        let install =
            self.named("operation").into_iter().find(|span| has(span, "chandler.operation", "install"))?;
        let passes = self.named("reconcile").into_iter();
        let pass = passes.into_iter().find(|pass| pass.span_id == install.parent_span_id)?;
        assert!(has(&pass, "chandler.kind", "HelmReleaseProxy"), "{pass:#?}");
        assert!(pass.parent_span_id.is_empty(), "a pass begins a trace");
        let call = self.children(&install).pop()?;
        assert_eq!(call.name, "/chandler.tool.v1.PackageTool/Apply");
        Some(self.children(&call).into_iter().map(|span| span.name).collect())
    }
}

fn has(span: &Span, key: &str, value: &str) -> bool {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    found.is_some_and(|attribute| format!("{:?}", attribute.value).contains(&format!("\"{value}\"")))
}

#[tokio::test]
async fn one_install_is_one_trace_and_a_dead_receiver_harms_nothing() {
    let world = World::new("traces").await;
    world.cluster("alpha").await;
    let receiver = Receiver::default();
    let endpoint = receiver.serve();
    let manager = world.manager_with(&["--otlp-endpoint", &endpoint]);
    world.place("hello", "hello", json!({"valuesTemplate": format!("greeting: {SECRET}")})).await;
    world.ready("hello", "alpha", 1).await;
    let requests = eventually("the whole trace has arrived", || async {
        receiver.requests_of_an_install().filter(|requests| requests.iter().any(|name| name == "PATCH"))
    })
    .await;
    assert!(requests.iter().any(|name| name == "GET"), "{requests:?}");
    for span in receiver.0.lock().unwrap().iter() {
        let told = format!("{span:?}");
        assert!(!told.contains(SECRET) && !told.contains("fieldValidation"), "{told}");
    }
    manager.stop().await;

    let manager = world.manager_with(&["--otlp-endpoint", "http://127.0.0.1:1"]);
    world.change("hello", json!({"valuesTemplate": "greeting: moin"})).await;
    world.ready("hello", "alpha", 2).await;
    let asked = Instant::now();
    manager.stop().await;
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "it ends although its spans cannot: {:?}",
        asked.elapsed()
    );
}
