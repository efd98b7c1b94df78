//! The labels of namespaces by which AddonTenancies select them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use chandler_core::failure::{Category, Failure};
use kube::Client;

use crate::{locks::Mutex, namespace_labels::NamespaceLabels};

/// How long labels are used without reading them again.
const CACHED: Duration = Duration::from_secs(10);
/// How long labels are used while they cannot be read again.
const KEPT: Duration = Duration::from_mins(1);
/// How long a failure is used without reading again: reconciles of the namespace do not wait for a read each.
const FAILED: Duration = Duration::from_secs(3);

type Labels = Arc<BTreeMap<String, String>>;

/// What is known about the labels of a namespace, and since when.
#[derive(Default)]
struct Known {
    labels: Option<(Instant, Labels)>,
    failure: Option<(Instant, Failure)>,
}

impl Known {
    /// Returns the labels if they were read within this time.
    fn labels(&self, age: Duration) -> Option<Labels> {
        self.labels.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, labels)| labels.clone())
    }

    /// Returns the result of the last read, if that need not be repeated.
    fn result(&self) -> Option<Result<Labels, Failure>> {
        if let Some(labels) = self.labels(CACHED) {
            return Some(Ok(labels));
        }
        let (_, failure) = self.failure.as_ref().filter(|(at, _)| at.elapsed() < FAILED)?;
        Some(self.kept(failure))
    }

    /// Returns the labels that were read last, for a while, although they could not be read again.
    fn kept(&self, failure: &Failure) -> Result<Labels, Failure> {
        self.labels(KEPT).ok_or_else(|| failure.clone())
    }

    fn is_outdated(&self) -> bool {
        let has_failed = self.failure.as_ref().is_some_and(|(at, _)| at.elapsed() < FAILED);
        !has_failed && self.labels(KEPT).is_none()
    }
}

/// Caches the labels of namespaces. Clones share the data.
#[derive(Clone)]
pub(super) struct SelectingLabels {
    read: NamespaceLabels,
    known: Arc<Mutex<HashMap<String, Known>>>,
}

impl SelectingLabels {
    pub fn new(client: Client) -> Self {
        Self { read: NamespaceLabels::new(client), known: Arc::default() }
    }

    /// Returns the labels of a namespace. If the read fails, those that were read last are returned for a while. A failure always has
    /// the category `Internal`: with that of the request, it could be taken for a failure of the workload cluster. Callers share
    /// reads that succeed, and reads that fail.
    pub async fn get(&self, namespace: &str) -> Result<Labels, Failure> {
        let known = self.known.lock().get(namespace).and_then(Known::result);
        if let Some(result) = known {
            return result;
        }
        let read = self.read.get(namespace).await;
        let mut all = self.known.lock();
        all.retain(|_, known| !known.is_outdated());
        let known = all.entry(namespace.to_owned()).or_default();
        match read {
            Ok(labels) => {
                *known = Known { labels: Some((Instant::now(), labels.clone())), failure: None };
                Ok(labels)
            }
            Err(failure) => {
                let failure = Failure::new(Category::Internal, failure.message);
                let result = known.kept(&failure);
                known.failure = Some((Instant::now(), failure));
                result
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

    /// Lets the next call read again.
    fn expire(labels: &SelectingLabels, namespace: &str, since: Duration) {
        let at = Instant::now().checked_sub(since).unwrap();
        let mut all = labels.known.lock();
        let known = all.get_mut(namespace).unwrap();
        if let Some((read_at, _)) = &mut known.labels {
            *read_at = at;
        }
        known.failure = None;
    }

    #[tokio::test]
    async fn labels_are_cached_and_kept_while_they_cannot_be_read() {
        let reads = Arc::new(AtomicUsize::new(0));
        let labels = SelectingLabels::new(client(&reads));
        for _ in 0..2 {
            assert_eq!(labels.get("team").await.unwrap()["tier"], "gold");
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        expire(&labels, "team", CACHED);
        assert_eq!(labels.get("team").await.unwrap()["tier"], "gold", "the last ones are kept");
        assert!(reads.load(Ordering::Relaxed) > 1);
        expire(&labels, "team", KEPT);
        labels.get("team").await.expect_err("and not forever");
        let failure = labels.get("other").await.unwrap_err();
        assert_eq!(failure.category, Category::Internal);
        assert!(failure.message.contains("the labels of namespace other cannot be read"), "{failure}");
    }

    /// An API server that does not answer must not delay each release of a namespace by a timeout of its own.
    #[tokio::test]
    async fn callers_share_a_read_that_fails() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let fail = move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err::<http::Response<Body>, _>(std::io::Error::other("unavailable"))
            }
        };
        let labels = SelectingLabels::new(Client::new(tower::service_fn(fail), "default"));
        let all = futures::future::join_all((0..20).map(|_| labels.get("team"))).await;
        assert!(all.iter().all(Result::is_err));
        let shared = reads.load(Ordering::Relaxed);
        assert!(shared <= 2, "{shared} reads");
        labels.get("team").await.unwrap_err();
        assert_eq!(reads.load(Ordering::Relaxed), shared, "the failure is shared for a moment");
        expire(&labels, "team", Duration::ZERO);
        labels.get("team").await.unwrap_err();
        assert!(reads.load(Ordering::Relaxed) > shared, "and then they are read again");
    }
}
