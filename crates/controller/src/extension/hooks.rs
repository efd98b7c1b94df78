//! Answers the runtime hooks of Cluster API from the extensions of a cluster.

use std::sync::Arc;

use chandler_api::extensions::{AddonRelease, UpgradeMoment};
use chandler_core::{
    cluster_deletion::waiting_text,
    extension::{AnnouncedUpgrade, RequestedVersions, UnplannedUpgrade, UpgradeSteps},
    identity::ClusterKey,
    placement::{KubernetesFollower, UpgradeAnswer, after_control_plane, before_upgrade},
    release::ReleaseKind as _,
    resolution::{UpgradeOutcome, UpgradePlan, VersionName},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use semver::Version;

use super::resolver::{Resolved, Resolver};
use crate::{
    caches::AllKinds,
    clusters::Clusters,
    hooks::{Caller, HookCall, HookHandler, HookResponse, PendingOperations},
};

/// Seconds after which Cluster API retries the hook.
const RETRY_AFTER: u32 = 5;

/// Answers hooks from the last resolution of a cluster.
pub struct ExtensionHooks {
    pub pending_operations: PendingOperations,
    pub resolver: Arc<Resolver>,
    pub clusters: Clusters,
    pub all_kinds: AllKinds,
}

impl HookHandler for ExtensionHooks {
    fn respond(&self, cluster: &ClusterKey, call: HookCall<'_>, caller: &Caller) -> HookResponse {
        match call {
            HookCall::BeforeUpgrade(announced) => self.before_upgrade(cluster, announced, caller),
            HookCall::AfterControlPlaneUpgrade { version } => self.after_step(cluster, version),
            HookCall::AfterClusterUpgrade { .. } => HookResponse::Proceed,
            HookCall::BeforeClusterDelete => self.before_delete(cluster),
        }
    }
}

impl ExtensionHooks {
    /// Returns the versions that the cached objects of a Cluster request, or `None` if the cache
    /// does not contain the Cluster.
    fn requested_versions(&self, cluster: &ClusterKey) -> Option<RequestedVersions> {
        let cached = self.clusters.get(cluster)?;
        let reference = self.clusters.facts(cluster).control_plane;
        let known = |reference| self.resolver.references.known(&cluster.namespace, &reference);
        let control_plane = reference.and_then(known);
        Some(RequestedVersions::new(&cached.data, control_plane.as_ref().map(|object| &object.data)))
    }

    fn before_delete(&self, cluster: &ClusterKey) -> HookResponse {
        if self.clusters.get(cluster).is_none() {
            return not_known(cluster);
        }
        let facts = self.clusters.facts(cluster);
        let removed_first = self.all_kinds.removed_first(cluster).into_iter();
        let pending: Vec<_> = removed_first.map(|release| release.pending).collect();
        if pending.is_empty() || facts.is_deleting() && !facts.waits_for_uninstalls(Timestamp::now()) {
            return HookResponse::Proceed;
        }
        wait(waiting_text(&pending, facts.uninstall_deadline))
    }

    fn before_upgrade(
        &self,
        cluster: &ClusterKey,
        announced: AnnouncedUpgrade<'_>,
        caller: &Caller,
    ) -> HookResponse {
        let Some(requested) = self.requested_versions(cluster) else { return not_known(cluster) };
        let upgrade = match requested.steps(announced) {
            Ok(upgrade) => upgrade,
            Err(error) => return unplanned(error),
        };
        let operations = self.pending_operations.answer(cluster);
        let extensions = first_block(operations, || self.extensions_before(cluster, &upgrade, caller));
        first_block(extensions, || {
            let (from, to) = (upgrade.from(), upgrade.to());
            answer(before_upgrade(&self.followers(cluster), from, to), to)
        })
    }

    fn after_step(&self, cluster: &ClusterKey, version: &str) -> HookResponse {
        let Some(requested) = self.requested_versions(cluster) else { return not_known(cluster) };
        let version = match requested.reached(version) {
            Ok(version) => version,
            Err(error) => return unplanned(error),
        };
        let operations = self.pending_operations.answer(cluster);
        let extensions = first_block(operations, || self.extensions_after_step(cluster, &version));
        first_block(extensions, || answer(after_control_plane(&self.followers(cluster), &version), &version))
    }

    fn followers(&self, cluster: &ClusterKey) -> Vec<KubernetesFollower> {
        let known = self.clusters.get(cluster);
        let uid = known.as_ref().and_then(|cluster| cluster.uid());
        let labels = known.map(|cluster| cluster.labels().clone()).unwrap_or_default();
        self.all_kinds.kubernetes_followers(cluster, &labels, uid.as_deref())
    }

    fn extensions_after_step(&self, cluster: &ClusterKey, version: &Version) -> HookResponse {
        let Some(resolved) = self.resolved(cluster) else { return self.unknown(cluster) };
        if resolved.input.kubernetes.current != *version {
            return wait("the extensions of this cluster are being resolved".to_owned());
        }
        let upgrade = resolved.input.kubernetes.upgrade.as_ref();
        if upgrade.is_some_and(|upgrade| upgrade.reached < UpgradeMoment::AfterControlPlane) {
            // The Cluster does not show yet that this step has reached its end.
            return wait("the extensions of this cluster are being resolved".to_owned());
        }
        let from = upgrade.map(|upgrade| upgrade.from.clone());
        let in_lockstep = resolved.resolution.chosen.iter().filter(|(name, chosen)| {
            let published = resolved.input.universe.extensions.get(*name);
            let stated = published.and_then(|published| {
                published.versions.iter().find(|known| known.name.version == chosen.version.version)
            });
            let range = stated.and_then(|known| known.kubernetes.as_ref());
            range.zip(from.as_ref()).is_some_and(|(range, from)| !range.contains(from))
        });
        let moves = in_lockstep.map(|(name, chosen)| (name.as_str(), &chosen.version));
        self.answer_when_ready(cluster, moves)
    }

    fn extensions_before(
        &self,
        cluster: &ClusterKey,
        upgrade: &UpgradeSteps,
        caller: &Caller,
    ) -> HookResponse {
        let Some(resolved) = self.resolved(cluster) else { return self.unknown(cluster) };
        let first = match first_plan(resolved.input.plan_steps(upgrade), caller) {
            Ok(first) => first,
            Err(response) => return response,
        };
        let unread = resolved.input.unread_running();
        if !unread.is_empty() {
            return wait(unread.join("; "));
        }
        // Cluster API calls a hook before each of the later steps.
        let moves = first.iter().flat_map(|plan| &plan.steps);
        let moves = moves.filter_map(|step| match &step.outcome {
            UpgradeOutcome::Moves { to, when: UpgradeMoment::BeforeControlPlane, .. } => {
                Some((step.extension.as_str(), to))
            }
            _ => None,
        });
        // Extensions that have moved already have to be ready too.
        let chosen = resolved.resolution.chosen.iter().filter(|_| resolved.resolution.upgrade.is_some());
        let moving = chosen.filter(|(name, chosen)| self.is_moving(cluster, name, &chosen.version));
        let moving = moving.map(|(name, chosen)| (name.as_str(), &chosen.version));
        self.answer_when_ready(cluster, moves.chain(moving))
    }

    /// Responds for a cluster without a resolution: it has no extensions, or this process has just started.
    fn unknown(&self, cluster: &ClusterKey) -> HookResponse {
        let labels = self.clusters.get(cluster).map(|cluster| cluster.labels().clone()).unwrap_or_default();
        if self.resolver.instances(cluster, &labels).is_empty() {
            HookResponse::Proceed
        } else {
            wait("the extensions of this cluster are being resolved".to_owned())
        }
    }

    fn resolved(&self, cluster: &ClusterKey) -> Option<Arc<Resolved>> {
        self.resolver.last(cluster)
    }

    /// Responds with `Proceed` if all of these extensions have their version and are deployed with it.
    fn answer_when_ready<'a>(
        &self,
        cluster: &ClusterKey,
        moves: impl Iterator<Item = (&'a str, &'a VersionName)>,
    ) -> HookResponse {
        let mut pending: Vec<_> = moves
            .filter(|(extension, version)| !self.is_at(cluster, extension, version))
            .map(|(extension, version)| format!("{extension} to {version}"))
            .collect();
        pending.sort();
        pending.dedup();
        if pending.is_empty() {
            return HookResponse::Proceed;
        }
        wait(format!("moving {} first", pending.join(", ")))
    }

    fn is_at(&self, cluster: &ClusterKey, extension: &str, version: &VersionName) -> bool {
        let releases = self.releases_of(cluster, extension);
        !releases.is_empty()
            && releases.iter().all(|release| {
                release.spec.version.as_deref() == Some(version.text.as_str()) && release.is_deployed()
            })
    }

    /// Returns whether an installed release does not have this version yet, or is not deployed with it. One that is only
    /// unhealthy need not move.
    fn is_moving(&self, cluster: &ClusterKey, extension: &str, version: &VersionName) -> bool {
        self.releases_of(cluster, extension).iter().any(|release| {
            let requested = release.spec.version.as_deref() == Some(version.text.as_str());
            let installed = release.status.as_ref().is_some_and(|status| !status.history.is_empty());
            installed && (!requested || !release.is_deployed())
        })
    }

    fn releases_of(&self, cluster: &ClusterKey, extension: &str) -> Vec<Arc<AddonRelease>> {
        let releases = self.resolver.releases.on_cluster(cluster);
        releases.into_iter().filter(|release| release.spec.extension.as_deref() == Some(extension)).collect()
    }
}

/// Returns the plan of the first step if no step is blocked. Plans no more steps if the caller has
/// given up.
fn first_plan<'u>(
    plans: impl Iterator<Item = (&'u Version, UpgradePlan)>,
    caller: &Caller,
) -> Result<Option<UpgradePlan>, HookResponse> {
    let mut first = None;
    for (step, plan) in plans {
        if plan.blocks() {
            return Err(HookResponse::Block { message: blocked(&plan, &step.to_string()) });
        }
        if caller.has_given_up() {
            return Err(wait("the upgrade is being planned".to_owned()));
        }
        first.get_or_insert(plan);
    }
    Ok(first)
}

fn blocked(plan: &UpgradePlan, to: &str) -> String {
    let blocks: Vec<_> = plan
        .steps
        .iter()
        .filter(|step| matches!(step.outcome, UpgradeOutcome::Blocks { .. }))
        .map(ToString::to_string)
        .collect();
    blocked_text(to, &blocks.join("; "))
}

fn blocked_text(to: &str, blocks: &str) -> String {
    format!(
        "Kubernetes {to} has to wait: {blocks}. Publish a compatible version, or annotate the Cluster with \
         chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade to upgrade anyway"
    )
}

/// Responds with the answer of add-ons to an upgrade to this version.
fn answer(answer: UpgradeAnswer, to: &Version) -> HookResponse {
    match answer {
        UpgradeAnswer::Proceed => HookResponse::Proceed,
        UpgradeAnswer::Wait(message) => wait(message),
        UpgradeAnswer::Block(blocks) => {
            HookResponse::Block { message: blocked_text(&to.to_string(), &blocks) }
        }
    }
}

/// Returns the first answer unless it is `Proceed`, else the second.
fn first_block(first: HookResponse, then: impl FnOnce() -> HookResponse) -> HookResponse {
    if first == HookResponse::Proceed { then() } else { first }
}

/// Responds for a Cluster that the cache does not contain. Its add-ons are unknown: Cluster API calls
/// hooks for Clusters that exist, so the watch is late. Clusters of namespaces that are not watched
/// do not get here: see [`crate::hooks::serve`].
fn not_known(cluster: &ClusterKey) -> HookResponse {
    wait(format!("Cluster {cluster} is not known yet"))
}

/// Responds to an upgrade that is not planned.
fn unplanned(error: UnplannedUpgrade) -> HookResponse {
    match error {
        UnplannedUpgrade::NotSeenYet(message) => wait(message),
        UnplannedUpgrade::Refused(message) => HookResponse::Block { message },
    }
}

fn wait(message: String) -> HookResponse {
    HookResponse::RetryAfter { seconds: RETRY_AFTER, message }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::runtime::reflector::store::Writer;
    use serde_json::json;

    use super::*;
    use crate::{
        caches::ReleaseCache,
        clusters::tests::{cached, cluster},
        controllers::{Controllers, Handles},
        extension::{
            ExtensionRegistry, Platform,
            registry::catalog_offers::CatalogOffers,
            resolver::{LastResolutions, solver::Solver},
        },
        locks::Mutex,
        metrics::Metrics,
        references::References,
        release::NamedCatalogs,
        routing::Index,
        sources::testing::{offline, packages},
        watch::Scope,
    };

    /// Returns the hooks of a manager that knows these Clusters, and no add-ons.
    fn hooks_without_addons(clusters: Clusters) -> ExtensionHooks {
        let folder = tempfile::tempdir().unwrap();
        let (client, metrics) = (offline(), Metrics::new());
        let (scope, packages) = (Scope { namespace: None, labels: None }, packages(folder.path()));
        let platform = Platform::new("platform".to_owned(), None);
        let (_, Handles { router, all_kinds, catalogs, tunnels: _ }) =
            Controllers::new(&scope, None, platform.clone(), None, &packages, &metrics);
        let index = Arc::new(Mutex::new(Index::new(&platform.namespace)));
        let catalogs = NamedCatalogs::new(client.clone(), catalogs, platform.namespace.clone());
        let resolver = Resolver {
            references: References::new(client, scope, router.clone()),
            instances: Writer::new(()).as_reader(),
            releases: ReleaseCache::new(index, Writer::new(()).as_reader()),
            registry: ExtensionRegistry::default(),
            offers: CatalogOffers::new(catalogs),
            platform,
            router,
            last: LastResolutions::default(),
            solver: Solver::default(),
            metrics,
        };
        let pending_operations = PendingOperations(Box::new(|_| Vec::new()));
        ExtensionHooks { pending_operations, resolver: Arc::new(resolver), clusters, all_kinds }
    }

    fn answers_to(clusters: Clusters, from: &str, to: &str) -> [HookResponse; 4] {
        let (hooks, blue) = (hooks_without_addons(clusters), ClusterKey::new("fleet", "blue"));
        let caller = Caller::default();
        [
            HookCall::BeforeUpgrade(AnnouncedUpgrade::Whole { from, to }),
            HookCall::BeforeUpgrade(AnnouncedUpgrade::Step { from, to }),
            HookCall::AfterControlPlaneUpgrade { version: to },
            HookCall::BeforeClusterDelete,
        ]
        .map(|call| hooks.respond(&blue, call, &caller))
    }

    fn with_topology(version: &str) -> Clusters {
        let mut blue = cluster();
        blue["spec"]["topology"] = json!({"version": version});
        cached(Some(blue))
    }

    #[tokio::test]
    async fn upgrades_and_deletions_wait_until_the_cluster_is_cached() {
        let answers = |clusters| answers_to(clusters, "v1.34.4", "v1.35.4");
        let unknown = wait("Cluster fleet/blue is not known yet".to_owned());
        assert_eq!(answers(cached(None)), [(); 4].map(|()| unknown.clone()));
        assert_eq!(answers(with_topology("v1.35.4")), [(); 4].map(|()| HookResponse::Proceed));
    }

    #[tokio::test]
    async fn only_an_upgrade_that_the_cluster_wants_is_planned() {
        let older = answers_to(with_topology("v1.34.4"), "v1.34.4", "v1.35.4");
        let endless = answers_to(with_topology("v1.34.4"), "v1.34.4", "v1.18446744073709551615.0");
        for upgrade in 0..3 {
            assert!(matches!(older[upgrade], HookResponse::RetryAfter { .. }), "{older:?}");
            assert!(matches!(endless[upgrade], HookResponse::Block { .. }), "{endless:?}");
        }
        assert_eq!((&older[3], &endless[3]), (&HookResponse::Proceed, &HookResponse::Proceed));
    }

    #[test]
    fn planning_ends_when_the_caller_has_given_up() {
        let (version, caller) = (Version::new(1, 35, 0), Caller::default());
        let waiting = Cell::new(Some(caller.waiting()));
        let planned = Cell::new(0);
        let plans = (1..=5).map(|step| {
            planned.set(step);
            if step == 2 {
                waiting.take();
            }
            (&version, UpgradePlan { steps: Vec::new(), conflict: None })
        });
        assert!(matches!(first_plan(plans, &caller), Err(HookResponse::RetryAfter { .. })));
        assert_eq!(planned.get(), 2);
    }
}
