//! Finds objects that exist although the caches do not contain them yet, before a release is changed or removed without regard to
//! them. [`crate::watch`] describes why caches differ.

use std::sync::Arc;

use chandler_api::capi::{CLUSTER_NAME_LABEL, WATCH_FILTER_LABEL};
use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    naming,
    placement::PlacementKind,
    release::ReleaseKind,
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};

use crate::{ManagementError, caches::placement_ref, error::found, status};

/// Returns whether the placement that a release object names exists.
pub type PlacementExists<R> =
    Box<dyn Fn(&R) -> BoxFuture<'static, Result<bool, ManagementError>> + Send + Sync>;

/// Returns the lookup of the placements of a kind.
///
/// With a `filter`, only placements with this value of the filter's label exist for this manager. One that cannot be decoded does not
/// exist either: it would never be cached.
pub fn placement_exists<P: PlacementKind>(
    client: &Client,
    filter: Option<&str>,
) -> PlacementExists<P::Release> {
    let (client, filter) = (client.clone(), filter.map(ToOwned::to_owned));
    Box::new(move |release| {
        let placement = placement_ref::<P>(release);
        let namespace = release.namespace().unwrap_or_default();
        let resource = ApiResource::erase::<P>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let filter = filter.clone();
        async move {
            let Some(placement) = placement else { return Ok(false) };
            let read = found(api.get(&placement.name).await).map_err(|source| ManagementError::Read {
                what: format!("{} {namespace}/{}", status::kind::<P>(), placement.name),
                source,
            })?;
            let is_watched = |read: &DynamicObject| {
                filter.is_none() || read.labels().get(WATCH_FILTER_LABEL) == filter.as_ref()
            };
            Ok(read.filter(is_watched).is_some_and(|read| read.try_parse::<P>().is_ok()))
        }
        .boxed()
    })
}

/// Returns whether a release object of kind `R` claims a release, and is none of those that the cache contains.
pub async fn has_uncached_claimant<R: ReleaseKind>(
    client: &Client,
    cluster: &ClusterKey,
    release: &ReleaseId,
    cached: &[Arc<R>],
) -> Result<bool, ManagementError> {
    let resource = ApiResource::erase::<R>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &cluster.namespace, &resource);
    let label = format!("{CLUSTER_NAME_LABEL}={}", naming::label_value(&cluster.name));
    // From the cache of the API server, because many releases may be uninstalled at the same time.
    let on_cluster = ListParams::default().labels(&label).match_any();
    let listed = found(api.list(&on_cluster).await).map_err(|source| {
        let what = format!("the {}s of Cluster {cluster}", status::kind::<R>());
        ManagementError::Read { what, source }
    })?;
    let claims = |object: DynamicObject| {
        let desired = object.try_parse::<R>().ok().and_then(|object| object.desired().ok());
        desired.is_some_and(|desired| desired.cluster == *cluster && desired.release == *release)
    };
    let is_uncached = |object: &DynamicObject| {
        object.metadata.deletion_timestamp.is_none()
            && !cached.iter().any(|cached| cached.uid() == object.uid())
    };
    Ok(listed.into_iter().flatten().filter(is_uncached).any(claims))
}

#[cfg(test)]
mod tests {
    use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api_server::FakeApiServer;

    const GROUP: &str = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/fleet";

    fn release(uid: &str, name: &str, owner: &Value) -> Value {
        json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {
                "name": uid, "namespace": "fleet", "uid": uid, "ownerReferences": owner,
                "labels": {CLUSTER_NAME_LABEL: "blue"},
            },
            "spec": {
                "chartName": "hello", "repoURL": "https://charts.example", "releaseName": name,
                "namespace": "hello", "clusterRef": {"kind": "Cluster", "name": "blue", "namespace": "fleet"},
            },
        })
    }

    fn parsed(object: &Value) -> HelmReleaseProxy {
        serde_json::from_value(object.clone()).unwrap()
    }

    #[tokio::test]
    async fn a_release_object_that_claims_the_release_is_found_although_it_is_not_cached() {
        let blue = ClusterKey::new("fleet", "blue");
        let (own, other) = (release("own", "hello", &json!([])), release("other", "hello", &json!([])));
        let mut deleting = other.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let rows = [
            ("no other", None, false),
            ("another", Some(other), true),
            ("one of another release", Some(release("other", "goodbye", &json!([]))), false),
            ("one that is being deleted", Some(deleting), false),
        ];
        let wanted = parsed(&own).desired().unwrap().release;
        for (what, stored, expected) in rows {
            let server = FakeApiServer::default();
            server.put(&format!("{GROUP}/helmreleaseproxies/own"), own.clone());
            if let Some(stored) = stored {
                server.put(&format!("{GROUP}/helmreleaseproxies/other"), stored);
            }
            let cached = [Arc::new(parsed(&own))];
            let found = has_uncached_claimant(&server.client(), &blue, &wanted, &cached).await;
            assert_eq!(found.unwrap(), expected, "{what}");
        }
        let unreadable = FakeApiServer::default();
        unreadable.fail_reads(&format!("{GROUP}/helmreleaseproxies"));
        has_uncached_claimant::<HelmReleaseProxy>(&unreadable.client(), &blue, &wanted, &[])
            .await
            .unwrap_err();
    }

    #[tokio::test]
    async fn a_placement_exists_if_the_api_server_has_it() {
        let owner_references = json!([{
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "hello", "uid": "1",
        }]);
        let path = format!("{GROUP}/helmchartproxies/hello");
        let placement = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": "fleet", "labels": {WATCH_FILTER_LABEL: "one"}},
            "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        });
        let mut undecodable = placement.clone();
        undecodable["spec"] = json!("a later version of the CRD");
        // What the API server has, the filter of the manager; whether the placement exists.
        let rows = [
            (None, None, false),
            (Some(placement.clone()), None, true),
            (Some(placement.clone()), Some("one"), true),
            (Some(placement.clone()), Some("other"), false),
            (Some(undecodable), None, false),
        ];
        let owned = parsed(&release("own", "hello", &owner_references));
        for (stored, filter, expected) in rows {
            let server = FakeApiServer::default();
            let exists = placement_exists::<HelmChartProxy>(&server.client(), filter);
            if let Some(stored) = stored.clone() {
                server.put(&path, stored);
            }
            assert_eq!(exists(&owned).await.unwrap(), expected, "{stored:?} {filter:?}");
            assert!(!exists(&parsed(&release("own", "hello", &json!([])))).await.unwrap(), "it names none");
            server.fail_reads(&path);
            exists(&owned).await.unwrap_err();
        }
    }
}
