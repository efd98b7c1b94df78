//! Counts the requests of a Kubernetes client: what was asked, and how it was answered.

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

/// A layer for a client, and what it has counted. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Requests(Arc<[[AtomicU64; RESULTS.len()]; VERBS.len()]>);

/// How often a verb had a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    pub verb: &'static str,
    pub result: &'static str,
    pub count: u64,
}

impl Default for Requests {
    fn default() -> Self {
        Self(Arc::new(array::from_fn(|_| array::from_fn(|_| AtomicU64::new(0)))))
    }
}

impl Requests {
    /// What has been counted, less what never happened.
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

    /// The same words as they are known here. None: they are not.
    pub fn known(verb: &str, result: &str) -> Option<(&'static str, &'static str)> {
        let word = |known: &[&'static str], word| known.iter().copied().find(|known| *known == word);
        Some((word(&VERBS, verb)?, word(&RESULTS, result)?))
    }

    fn note(&self, verb: usize, status: Option<u16>) {
        if let Some(counter) = self.0.get(verb).and_then(|results| results.get(result(status))) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn verb(method: &Method, uri: &Uri) -> usize {
    let watches = uri.query().is_some_and(|query| query.split('&').any(|one| one == "watch=true"));
    let word = match method.as_str() {
        "GET" if watches => "watch",
        "GET" => "get",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    VERBS.iter().position(|known| *known == word).unwrap_or(VERBS.len())
}

/// None: there was no answer.
fn result(status: Option<u16>) -> usize {
    let word = match status {
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
    RESULTS.iter().position(|known| *known == word).unwrap_or(RESULTS.len())
}

impl<S> Layer<S> for Requests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { requests: self.clone(), inner }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    requests: Requests,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for Counted<S>
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
        let (requests, verb) = (self.requests.clone(), verb(request.method(), request.uri()));
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            requests.note(verb, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
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
        let requests = Requests::default();
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
            let answering = service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
            });
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            requests.layer(answering).oneshot(request).await.unwrap();
            let counted = RequestCount { verb, result, count: 1 };
            assert!(requests.counts().contains(&counted), "{counted:?}: {:?}", requests.counts());
        }
        let broken = service_fn(|_: Request<()>| async { Err::<Response<()>, _>("no route") });
        requests.layer(broken).oneshot(Request::new(())).await.unwrap_err();
        let counted = RequestCount { verb: "get", result: "unreachable", count: 1 };
        assert!(requests.counts().contains(&counted));
        assert_eq!(requests.counts().len(), rows.len() + 1);
    }
}
