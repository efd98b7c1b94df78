//! The labels of namespaces by which AddonTenancies select them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::failure::{Category, Failure};
use kube::Client;

use crate::{locks::Mutex, namespace_labels::NamespaceLabels, single_flight::SingleFlight};

/// How long labels are used without reading them again.
const CACHED: Duration = Duration::from_secs(10);
/// How long labels are used while they cannot be read again.
const KEPT: Duration = Duration::from_mins(1);

type Labels = Arc<BTreeMap<String, String>>;

/// Caches the labels of namespaces. Clones share the data.
#[derive(Clone)]
pub(super) struct SelectingLabels {
    read: NamespaceLabels,
    cached: Arc<SingleFlight<String, Labels>>,
    /// What was read last, and when.
    last: Arc<Mutex<HashMap<String, (Instant, Labels)>>>,
}

impl SelectingLabels {
    pub fn new(client: Client) -> Self {
        Self {
            read: NamespaceLabels::new(client),
            cached: Arc::new(SingleFlight::new(CACHED)),
            last: Arc::default(),
        }
    }

    /// Returns the labels of a namespace. If the read fails, those that were read last are returned for a while. A failure always has
    /// the category `Internal`: with that of the request, it could be taken for a failure of the workload cluster.
    pub async fn get(&self, namespace: &str) -> Result<Labels, Failure> {
        match self.cached.get(&namespace.to_owned(), self.read.get(namespace)).await {
            Ok(labels) => {
                self.last.lock().insert(namespace.to_owned(), (Instant::now(), labels.clone()));
                Ok(labels)
            }
            Err(failure) => {
                let mut last = self.last.lock();
                last.retain(|_, (at, _)| at.elapsed() < KEPT);
                let kept = last.get(namespace).map(|(_, labels)| labels.clone());
                kept.ok_or_else(|| Failure::new(Category::Internal, failure.message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Serves one read, then fails.
    fn client(reads: &Arc<AtomicUsize>) -> Client {
        let reads = reads.clone();
        let serve = move |_: http::Request<Body>| {
            let is_first = reads.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                let object = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "team", "labels": {"tier": "gold"}},
                });
                let body = Body::from(object.to_string().into_bytes());
                if is_first {
                    Ok(http::Response::new(body))
                } else {
                    Err(std::io::Error::other("unavailable"))
                }
            }
        };
        Client::new(tower::service_fn(serve), "default")
    }

    #[tokio::test]
    async fn labels_are_cached_and_kept_while_they_cannot_be_read() {
        let reads = Arc::new(AtomicUsize::new(0));
        let mut labels = SelectingLabels::new(client(&reads));
        for _ in 0..2 {
            assert_eq!(labels.get("team").await.unwrap()["tier"], "gold");
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        labels.cached = Arc::new(SingleFlight::new(CACHED));
        assert_eq!(labels.get("team").await.unwrap()["tier"], "gold", "the last ones are kept");
        assert!(reads.load(Ordering::Relaxed) > 1);
        let failure = labels.get("other").await.unwrap_err();
        assert_eq!(failure.category, Category::Internal);
        assert!(failure.message.contains("the labels of namespace other cannot be read"), "{failure}");
    }
}
