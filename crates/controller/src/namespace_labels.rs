//! Labels of namespaces, by which catalogs and Sources select who may use them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_core::failure::{Category, Failure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};

use crate::single_flight::SingleFlight;

/// Limit of a request. Reconciles of all objects that select by these labels wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);

type Labels = Arc<BTreeMap<String, String>>;

/// Reads the labels of namespaces. Objects that ask at the same moment share a read. Clones share the reads.
#[derive(Clone)]
pub struct NamespaceLabels {
    client: Client,
    read: Arc<SingleFlight<String, Result<Labels, Failure>>>,
}

impl NamespaceLabels {
    pub fn new(client: Client) -> Self {
        Self { client, read: Arc::new(SingleFlight::new(Duration::ZERO)) }
    }

    /// Returns the labels that a namespace has now: a user who adds one and then changes an object expects it to count.
    pub async fn get(&self, namespace: &str) -> Result<Labels, Failure> {
        self.read.get_fresh(&namespace.to_owned(), self.request(namespace)).await
    }

    async fn request(&self, namespace: &str) -> Result<Labels, Failure> {
        let failed = |category, why: &str| {
            Failure::new(category, format!("the labels of namespace {namespace} cannot be read: {why}"))
        };
        let api = Api::<Namespace>::all(self.client.clone());
        let found = tokio::time::timeout(TIMEOUT, api.get_metadata(namespace)).await;
        let found = found.map_err(|_| {
            let why =
                format!("the API server did not answer within {} s; this is retried", TIMEOUT.as_secs());
            failed(Category::Timeout, &why)
        })?;
        let found = found.map_err(|error| {
            let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
            // Another one says nothing about what the namespace may do.
            let category = if is_forbidden { Category::Forbidden } else { Category::Internal };
            failed(category, &error.to_string())
        })?;
        Ok(Arc::new(found.labels().clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn those_that_ask_at_the_same_moment_share_a_read() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let serve = move |request: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let object = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "team", "labels": {"path": request.uri().path()}},
            });
            async move {
                Ok::<_, std::io::Error>(http::Response::new(Body::from(object.to_string().into_bytes())))
            }
        };
        let labels = NamespaceLabels::new(Client::new(tower::service_fn(serve), "default"));
        let all = futures::future::join_all((0..10).map(|_| labels.get("team"))).await;
        for found in all {
            assert_eq!(found.unwrap()["path"], "/api/v1/namespaces/team");
        }
        let shared = requests.load(Ordering::Relaxed);
        assert!(shared <= 2, "{shared} requests");
        labels.get("team").await.unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), shared + 1, "labels are not cached");
    }

    #[tokio::test]
    async fn those_that_ask_at_the_same_moment_share_a_failed_read() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let refuse = move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::task::yield_now().await;
                Err::<http::Response<Body>, _>(std::io::Error::other("unavailable"))
            }
        };
        let labels = NamespaceLabels::new(Client::new(tower::service_fn(refuse), "default"));
        let all = futures::future::join_all((0..10).map(|_| labels.get("team"))).await;
        assert!(all.iter().all(Result::is_err));
        assert!(requests.load(Ordering::Relaxed) <= 2);
    }
}
