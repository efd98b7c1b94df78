//! What the extensions of a cluster mean for a step of its life.

use std::sync::Arc;

use chandler_api::extensions::{AddonRelease, OnClusterDelete, UpgradeMoment};
use chandler_core::{
    identity::ClusterKey,
    release::ReleaseKind as _,
    resolution::{UpgradeOutcome, UpgradePlan, VersionName, parse_kubernetes_version},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::resolver::{Resolved, Resolver};
use crate::{
    clusters::Clusters,
    hooks::{HookHandler, HookResponse, UnderWay},
};

/// When Cluster API asks again.
const SOON: u32 = 5;

/// Answers from what was decided last.
pub struct ExtensionAnswers {
    pub under_way: UnderWay,
    pub resolver: Arc<Resolver>,
    pub clusters: Clusters,
}

impl HookHandler for ExtensionAnswers {
    fn before_cluster_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> HookResponse {
        settled(self.under_way.before_cluster_upgrade(cluster, from, to), || self.before(cluster, from, to))
    }

    fn before_control_plane_upgrade(&self, cluster: &ClusterKey, from: &str, to: &str) -> HookResponse {
        settled(self.under_way.before_control_plane_upgrade(cluster, from, to), || {
            self.before(cluster, from, to)
        })
    }

    fn after_control_plane_upgrade(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
        let under_way = self.under_way.after_control_plane_upgrade(cluster, version);
        settled(under_way, || self.after_control_plane(cluster, version))
    }

    fn after_cluster_upgrade(&self, _: &ClusterKey, _: &str) -> HookResponse {
        HookResponse::Proceed
    }

    fn before_cluster_delete(&self, cluster: &ClusterKey) -> HookResponse {
        let facts = self.clusters.facts(cluster);
        let releases = self.resolver.releases.on_cluster(cluster);
        let holding: Vec<_> = releases
            .iter()
            .filter(|release| release.spec.on_cluster_delete == OnClusterDelete::Uninstall)
            .map(called)
            .collect();
        if holding.is_empty() || facts.is_deleting() && !facts.waits_for_removals(Timestamp::now()) {
            return HookResponse::Proceed;
        }
        wait(format!("uninstalling {} first, for what it holds outside of the cluster", holding.join(", ")))
    }
}

impl ExtensionAnswers {
    fn after_control_plane(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
        let (Some(resolved), Some(version)) = (self.resolved(cluster), parse_kubernetes_version(version))
        else {
            return self.unknown(cluster);
        };
        if resolved.input.kubernetes.current != version {
            return wait("the extensions of this cluster are being looked at".to_owned());
        }
        let from = resolved.input.kubernetes.upgrade.as_ref().map(|upgrade| upgrade.from.clone());
        let in_lockstep = resolved.resolution.chosen.iter().filter(|(name, chosen)| {
            let published = resolved.input.universe.extensions.get(*name);
            let stated = published.and_then(|published| {
                published.versions.iter().find(|known| known.name.version == chosen.version.version)
            });
            let range = stated.and_then(|known| known.kubernetes.as_ref());
            range.zip(from.as_ref()).is_some_and(|(range, from)| !range.contains(from))
        });
        let moves = in_lockstep.map(|(name, chosen)| (name.as_str(), &chosen.version));
        self.arrived(cluster, moves)
    }

    fn before(&self, cluster: &ClusterKey, from: &str, to: &str) -> HookResponse {
        let versions = parse_kubernetes_version(from).zip(parse_kubernetes_version(to));
        let (Some(resolved), Some((from, to))) = (self.resolved(cluster), versions) else {
            return self.unknown(cluster);
        };
        let plan = resolved.input.plan(&from, &to);
        if plan.blocks() {
            return HookResponse::Block { message: blocked(&plan, &to.to_string()) };
        }
        let moves = plan.steps.iter().filter_map(|step| match &step.outcome {
            UpgradeOutcome::Moves { to, when: UpgradeMoment::BeforeControlPlane, .. } => {
                Some((step.extension.as_str(), to))
            }
            _ => None,
        });
        // What has moved already is to be ready as well.
        let chosen = resolved.resolution.chosen.iter().filter(|_| resolved.resolution.upgrade.is_some());
        let moving = chosen.filter(|(name, chosen)| self.is_moving(cluster, name, &chosen.version));
        let moving = moving.map(|(name, chosen)| (name.as_str(), &chosen.version));
        self.arrived(cluster, moves.chain(moving))
    }

    /// Nothing was decided for the cluster: it has no extensions, or this process has just begun.
    fn unknown(&self, cluster: &ClusterKey) -> HookResponse {
        let labels = self.clusters.get(cluster).map(|cluster| cluster.labels().clone()).unwrap_or_default();
        if self.resolver.instances(cluster, &labels).is_empty() {
            HookResponse::Proceed
        } else {
            wait("the extensions of this cluster are being looked at".to_owned())
        }
    }

    fn resolved(&self, cluster: &ClusterKey) -> Option<Arc<Resolved>> {
        self.resolver.last(cluster)
    }

    /// Go, once all of these are at their versions and ready.
    fn arrived<'a>(
        &self,
        cluster: &ClusterKey,
        moves: impl Iterator<Item = (&'a str, &'a VersionName)>,
    ) -> HookResponse {
        let mut on_the_way: Vec<_> = moves
            .filter(|(extension, version)| !self.is_at(cluster, extension, version))
            .map(|(extension, version)| format!("{extension} to {version}"))
            .collect();
        on_the_way.sort();
        on_the_way.dedup();
        if on_the_way.is_empty() {
            return HookResponse::Proceed;
        }
        wait(format!("moving {} first", on_the_way.join(", ")))
    }

    fn is_at(&self, cluster: &ClusterKey, extension: &str, version: &VersionName) -> bool {
        let releases = self.releases_of(cluster, extension);
        !releases.is_empty()
            && releases.iter().all(|release| {
                release.spec.version.as_deref() == Some(version.text.as_str()) && release.is_ready()
            })
    }

    /// Whether a release was told another version and has not arrived there.
    fn is_moving(&self, cluster: &ClusterKey, extension: &str, version: &VersionName) -> bool {
        self.releases_of(cluster, extension).iter().any(|release| {
            let told = release.spec.version.as_deref() == Some(version.text.as_str());
            let installed = release.status.as_ref().is_some_and(|status| !status.history.is_empty());
            let arrived = release.current_status().is_some() && release.is_ready();
            installed && (!told || !arrived)
        })
    }

    fn releases_of(&self, cluster: &ClusterKey, extension: &str) -> Vec<Arc<AddonRelease>> {
        let releases = self.resolver.releases.on_cluster(cluster);
        releases.into_iter().filter(|release| release.spec.extension.as_deref() == Some(extension)).collect()
    }
}

fn called(release: &Arc<AddonRelease>) -> String {
    release.spec.extension.clone().unwrap_or_else(|| release.name_any())
}

fn blocked(plan: &UpgradePlan, to: &str) -> String {
    let blocks: Vec<_> = plan
        .steps
        .iter()
        .filter(|step| matches!(step.outcome, UpgradeOutcome::Blocks { .. }))
        .map(ToString::to_string)
        .collect();
    format!(
        "Kubernetes {to} has to wait: {}. Publish a version that fits, or annotate the Cluster with \
         chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade to go on without",
        blocks.join("; ")
    )
}

/// What holds anyway, else what else there is to say.
fn settled(first: HookResponse, then: impl FnOnce() -> HookResponse) -> HookResponse {
    if first == HookResponse::Proceed { then() } else { first }
}

fn wait(message: String) -> HookResponse {
    HookResponse::RetryAfter { seconds: SOON, message }
}
