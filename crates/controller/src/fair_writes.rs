//! Shares the capacity of the management API server between namespaces: a tenant whose objects change all the time does not delay
//! what is written for another one.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use chandler_core::namespace_shares::Order;
use chandler_source::NamespaceSemaphore;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request};
use tower::{Layer, Service};

/// How many writes run at the same time. An API server with few cores answers more of them later, not sooner.
const CONCURRENT_WRITES: usize = 8;
/// A write that takes longer waits for something else than the CPU of the API server, such as a webhook, or is tried again: others
/// go on.
const LONGEST_TURN: Duration = Duration::from_secs(3);
/// Leases are renewed in time, whatever else is written.
const LEASES: &str = "coordination.k8s.io";

/// A layer for clients of the management cluster that limits the number of concurrent writes to objects of namespaces. The namespace
/// that has written the least of late goes first. Clones share the limit. Waiting counts towards the deadline of a response.
#[derive(Clone, Debug)]
pub struct FairWrites(Arc<NamespaceSemaphore>);

impl Default for FairWrites {
    fn default() -> Self {
        Self(Arc::new(NamespaceSemaphore::ordered(CONCURRENT_WRITES, Order::LeastUsed)))
    }
}

impl<S> Layer<S> for FairWrites {
    type Service = FairService<S>;

    fn layer(&self, inner: S) -> FairService<S> {
        FairService { slots: self.0.clone(), inner }
    }
}

/// A service whose writes take turns.
#[derive(Clone, Debug)]
pub struct FairService<S> {
    slots: Arc<NamespaceSemaphore>,
    inner: S,
}

impl<S, B> Service<Request<B>> for FairService<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let namespace = written_namespace(request.method(), request.uri().path()).map(str::to_owned);
        // The client of hyper sends nothing before this is polled.
        let response = self.inner.call(request);
        let Some(namespace) = namespace else { return response.boxed() };
        let slots = self.slots.clone();
        async move {
            let slot = slots.wait(&namespace).await;
            let mut response = pin!(response);
            if let Ok(response) = tokio::time::timeout(LONGEST_TURN, &mut response).await {
                return response;
            }
            drop(slot);
            response.await
        }
        .boxed()
    }
}

/// Returns the namespace of the object that a request writes. `None` means that the request does not wait.
fn written_namespace<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    if *method == Method::GET {
        return None;
    }
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", _, "namespaces", namespace, _, ..] => Some(namespace),
        ["apis", group, _, "namespaces", namespace, _, ..] if *group != LEASES => Some(namespace),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::atomic::AtomicUsize, sync::atomic::Ordering, time::Duration};

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    /// Writes an object of a namespace.
    fn write<S>(
        client: &FairService<S>,
        namespace: &str,
    ) -> impl Future<Output = Result<(), Infallible>> + use<S>
    where
        S: Service<Request<()>, Response = (), Error = Infallible> + Clone,
        S::Future: Send + 'static,
    {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = Request::builder().method(Method::POST).uri(path).body(()).unwrap();
        client.clone().oneshot(request)
    }

    #[test]
    fn only_writes_to_objects_of_namespaces_wait() {
        let rows = [
            (
                Method::PATCH,
                "/apis/chandler.dev/v1alpha1/namespaces/red/addonreleases/web/status",
                Some("red"),
            ),
            (Method::POST, "/api/v1/namespaces/red/events", Some("red")),
            (Method::DELETE, "/apis/chandler.dev/v1alpha1/namespaces/red/addonreleases/web", Some("red")),
            (Method::GET, "/api/v1/namespaces/red/secrets/web", None),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/chandler-system/leases/chandler", None),
            (Method::PATCH, "/api/v1/namespaces/red", None),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", None),
        ];
        for (method, path, namespace) in rows {
            assert_eq!(written_namespace(&method, path), namespace, "{method} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_hang_keep_no_other_namespace_waiting_for_long() {
        let server = service_fn(|request: Request<()>| async move {
            if request.uri().path().contains("/slow") {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(())
        });
        let client = FairWrites::default().layer(server);
        let slow: Vec<_> =
            (0..20).map(|number| tokio::spawn(write(&client, &format!("slow-{}", number % 4)))).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let other = tokio::time::timeout(Duration::from_secs(4), write(&client, "other"));
        other.await.expect("a slot is free after three seconds").unwrap();
        // A caller that gives up leaves the queue.
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..CONCURRENT_WRITES {
            tokio::time::timeout(Duration::from_millis(1), write(&client, "other")).await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_limited_and_another_namespace_goes_first() {
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let server = {
            let (running, most) = (running.clone(), most.clone());
            service_fn(move |_: Request<()>| {
                let (running, most) = (running.clone(), most.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(())
                }
            })
        };
        let client = FairWrites::default().layer(server);
        let write = |namespace: &str| tokio::spawn(write(&client, namespace));
        let busy: Vec<_> = (0..60).map(|_| write("busy")).collect();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let started = tokio::time::Instant::now();
        for other in (0..6).map(|_| write("other")).collect::<Vec<_>>() {
            other.await.unwrap().unwrap();
        }
        // Two slots are free, and four more after those that run.
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert!(busy.iter().any(|write| !write.is_finished()), "the others still wait");
        assert_eq!(most.load(Ordering::SeqCst), CONCURRENT_WRITES);
    }
}
