//! The HelmChartProxies of a cluster whose versions follow its Kubernetes version. Pure.

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_core::{
    identity::ClusterKey,
    placement::{KubernetesFollower, PlacementKind as _},
};
use kube::{ResourceExt as _, api::DynamicObject};

/// HelmChartProxies and their release objects.
pub struct Charts {
    pub placements: Vec<HelmChartProxy>,
    pub releases: Vec<HelmReleaseProxy>,
}

impl Charts {
    /// Returns the add-ons of a cluster whose versions follow its Kubernetes version, sorted by name.
    pub fn followers(&self, cluster: &DynamicObject) -> Vec<KubernetesFollower> {
        let key = ClusterKey::new(cluster.namespace().unwrap_or_default(), cluster.name_any());
        let uid = cluster.uid();
        let selecting = self.placements.iter().filter(|placement| {
            placement.metadata.deletion_timestamp.is_none() && placement.selects(&key, cluster.labels())
        });
        let follower = |placement: &HelmChartProxy| {
            let release = self.releases.iter().find(|release| {
                release.metadata.deletion_timestamp.is_none()
                    && HelmChartProxy::cluster_of(release).as_ref() == Some(&key)
                    && is_owned_by(release, placement)
            });
            KubernetesFollower::new(placement, release, uid.as_deref())
        };
        let mut followers: Vec<_> = selecting.filter_map(follower).collect();
        followers.sort_by(|a, b| a.name.cmp(&b.name));
        followers
    }
}

/// Returns whether a release object of the same namespace belongs to a placement.
fn is_owned_by(release: &HelmReleaseProxy, placement: &HelmChartProxy) -> bool {
    let name = placement.name_any();
    release.owner_references().iter().any(|owner| owner.kind == "HelmChartProxy" && owner.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        fixtures::{cluster, resolution_input},
        upgrade_check::{ClusterOutcome, ClusterReport, ExtensionOutcome},
    };

    fn placement(name: &str, annotations: &Value, labels: &Value) -> HelmChartProxy {
        serde_json::from_value(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": name, "namespace": "fleet", "annotations": annotations},
            "spec": {
                "clusterSelector": {"matchLabels": labels}, "chartName": name, "repoURL": "https://charts.example",
            },
        }))
        .unwrap()
    }

    fn release(placement: &str, cluster: &str, version: &str) -> HelmReleaseProxy {
        serde_json::from_value(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
            "metadata": {
                "name": format!("{placement}-{cluster}"), "namespace": "fleet",
                "ownerReferences": [{
                    "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": placement,
                    "uid": "",
                }],
            },
            "spec": {
                "clusterRef": {"name": cluster}, "chartName": placement, "repoURL": "https://charts.example",
                "releaseName": placement, "version": version,
            },
        }))
        .unwrap()
    }

    #[test]
    fn charts_whose_versions_follow_kubernetes_are_reported() {
        let both = json!({"chandler.dev/kubernetes-versions": r#"{"1.34": "1.2.x", "1.35": "1.3.x"}"#});
        let old = json!({"chandler.dev/kubernetes-versions": r#"{"1.34": "1.2.x"}"#});
        let mut paused = both.clone();
        paused["cluster.x-k8s.io/paused"] = json!("");
        let all = json!({});
        let charts = Charts {
            placements: vec![
                placement("paused", &paused, &all),
                placement("old", &old, &all),
                placement("cni", &both, &all),
                placement("plain", &json!({}), &all),
                placement("elsewhere", &both, &json!({"stage": "test"})),
            ],
            releases: vec![release("cni", "bravo", "1.3.x"), release("cni", "alpha", "1.2.x")],
        };
        let alpha = cluster("alpha");
        let report = ClusterReport::new(&alpha, Ok(resolution_input(&[])), &charts.followers(&alpha), None);
        assert_eq!(report.outcome, ClusterOutcome::Blocked);
        let rows: Vec<_> = report
            .extensions
            .iter()
            .map(|row| (row.name.as_str(), row.running.as_deref(), row.outcome, row.to.as_deref()))
            .collect();
        assert_eq!(
            rows,
            [
                ("cni", Some("1.2.x"), ExtensionOutcome::Moves, Some("1.3.x")),
                ("old", None, ExtensionOutcome::Blocks, None),
                ("paused", None, ExtensionOutcome::Stays, None),
            ]
        );
        let messages: Vec<_> = report.extensions.iter().map(|row| row.message.as_str()).collect();
        assert_eq!(messages[0], "cni 1.2.x moves to 1.3.x after the control plane");
        assert!(messages[1].starts_with("old blocks: "), "{messages:?}");
        assert_eq!(messages[2], "paused stays, because it is paused");
    }
}
