//! Counts the requests of a Kubernetes client by verb and result.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

const VERBS: [&str; 7] = ["get", "watch", "post", "put", "patch", "delete", "other"];
/// The index of `get`.
const GET: usize = 0;
const RESULTS: [&str; 9] = [
    "success",
    "not_found",
    "conflict",
    "unauthorized",
    "forbidden",
    "throttled",
    "refused",
    "server_error",
    "unreachable",
];

/// A layer that counts the requests of a client. Clones share the counts.
#[derive(Clone, Debug)]
pub struct RequestCounter(Arc<[[AtomicU64; RESULTS.len()]; VERBS.len()]>);

/// The number of requests with a verb and a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    pub verb: &'static str,
    pub result: &'static str,
    pub count: u64,
}

impl Default for RequestCounter {
    fn default() -> Self {
        Self(Arc::new(array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0)))))
    }
}

impl RequestCounter {
    /// Returns all counts above zero.
    pub fn counts(&self) -> Vec<RequestCount> {
        let all = self.0.iter().zip(VERBS).flat_map(|(results, verb)| {
            results.iter().zip(RESULTS).map(move |(count, result)| RequestCount {
                verb,
                result,
                count: count.load(Ordering::Relaxed),
            })
        });
        all.filter(|one| one.count > 0).collect()
    }

    /// Returns the static labels that equal `verb` and `result`, or `None` if either is unknown.
    pub fn labels(verb: &str, result: &str) -> Option<(&'static str, &'static str)> {
        let label = |known: &[&'static str], text| known.iter().copied().find(|known| *known == text);
        Some((label(&VERBS, verb)?, label(&RESULTS, result)?))
    }

    /// Counts a GET that was not sent through the layer. A `status` of `None` means that there was no response.
    pub fn count_get(&self, status: Option<u16>) {
        self.record(GET, status);
    }

    fn record(&self, verb: usize, status: Option<u16>) {
        if let Some(counter) = self.0.get(verb).and_then(|results| results.get(result(status))) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns whether a request to an API server opens a watch.
pub fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|one| one == "watch=true"))
}

fn verb(method: &Method, uri: &Uri) -> usize {
    let verb = match method.as_str() {
        "GET" if is_watch(uri) => "watch",
        "GET" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    VERBS.iter().position(|known| *known == verb).unwrap_or(VERBS.len())
}

/// Returns the index of the result. A `status` of `None` means that there was no response.
fn result(status: Option<u16>) -> usize {
    let result = match status {
        None => "unreachable",
        Some(..400) => "success",
        Some(401) => "unauthorized",
        Some(403) => "forbidden",
        Some(404) => "not_found",
        Some(409) => "conflict",
        Some(429) => "throttled",
        Some(..500) => "refused",
        Some(_) => "server_error",
    };
    RESULTS.iter().position(|known| *known == result).unwrap_or(RESULTS.len())
}

impl<S> Layer<S> for RequestCounter {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> CountedService<S> {
        CountedService { counter: self.clone(), inner }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct CountedService<S> {
    counter: RequestCounter,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for CountedService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (counter, verb) = (self.counter.clone(), verb(request.method(), request.uri()));
        let response = self.inner.call(request);
        async move {
            let response = response.await;
            counter.record(verb, response.as_ref().ok().map(|response| response.status().as_u16()));
            response
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_verb_and_result() {
        let counter = RequestCounter::default();
        let rows = [
            ("GET", "/api?watch=true", 200, "watch", "success"),
            ("GET", "/api", 404, "get", "not_found"),
            ("PATCH", "/api", 409, "patch", "conflict"),
            ("PUT", "/api", 401, "put", "unauthorized"),
            ("POST", "/api", 422, "post", "refused"),
            ("DELETE", "/api", 503, "delete", "server_error"),
            ("HEAD", "/api", 429, "other", "throttled"),
        ];
        for (method, uri, status, verb, result) in rows {
            let responding = service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
            });
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            counter.layer(responding).oneshot(request).await.unwrap();
            let expected = RequestCount { verb, result, count: 1 };
            assert!(counter.counts().contains(&expected), "{expected:?}: {:?}", counter.counts());
        }
        let broken = service_fn(|_: Request<()>| async { Err::<Response<()>, _>("no route") });
        counter.layer(broken).oneshot(Request::new(())).await.unwrap_err();
        counter.count_get(None);
        let expected = RequestCount { verb: "get", result: "unreachable", count: 2 };
        assert!(counter.counts().contains(&expected));
        assert_eq!(counter.counts().len(), rows.len() + 1);
    }
}
