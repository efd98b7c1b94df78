//! The cluster as a reconcile sees it.

use std::sync::Arc;

use chandler_api::extensions::OnFailure;
use chandler_core::{
    failure::{Category, Failure},
    identity::ReleaseId,
    release::{ClusterState, Desired, RecordState, ReleaseKind, ToolChoice, tool_with_record},
    rollout::requested_rollback,
    target::Target,
};
use chandler_tool::PackageTool;
use chandler_workload::{Connection, InventoryView};
use kube::core::NamespaceResourceScope;

use super::{Reconciler, package_format};
use crate::clusters::ClusterFacts;

/// The capability of a tool that can roll back.
const ROLLBACK: &str = "rollback";

/// The cluster as a reconcile sees it.
pub(super) struct View {
    pub facts: ClusterFacts,
    /// The tool of the release and the connection that watches its records. `None` means that the cluster is not connected.
    pub connected: Option<(PackageTool, Arc<Connection>)>,
    pub inventory: InventoryView,
    /// Whether a rollback is possible, if the policy wants one.
    pub can_roll_back: bool,
}

impl View {
    pub fn connection(&self) -> Option<&Arc<Connection>> {
        self.connected.as_ref().map(|(_, connection)| connection)
    }

    pub fn target(&self) -> Option<Target> {
        self.connection()?.target()
    }
}

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    pub(super) async fn view(&self, desired: &Desired) -> View {
        let facts = self.context.clusters.facts(&desired.cluster);
        let reachable = facts.state == ClusterState::Available
            || desired.remove_with_cluster && facts.waits_for_removals(self.now);
        if !reachable {
            let inventory = InventoryView::Loading;
            return View { facts, connected: None, inventory, can_roll_back: false };
        }
        match self.connect(desired, facts.uid.as_deref()).await {
            Ok((tool, connection)) => {
                let inventory = connection.inventory();
                let can_roll_back = self.can_roll_back(&tool).await;
                View { facts, connected: Some((tool, connection)), inventory, can_roll_back }
            }
            Err(failure) => {
                let inventory = InventoryView::Unavailable(failure);
                View { facts, connected: None, inventory, can_roll_back: false }
            }
        }
    }

    /// Returns whether the policy rolls back, or a user has asked for it, and the tool can do it. A tool that does not answer may be able to.
    async fn can_roll_back(&self, tool: &PackageTool) -> bool {
        let remediation = self.placement.policy.effective().remediation;
        let is_requested =
            self.placement.aborted_from.is_some() || requested_rollback(&*self.object).is_some();
        let is_remediation = self.status.last_failure.is_some()
            && remediation.is_some_and(|remediation| remediation.on_failure == OnFailure::Rollback);
        if !is_requested && !is_remediation {
            return false;
        }
        let description = tool.description().await;
        description.map_or(true, |description| description.capabilities.iter().any(|one| one == ROLLBACK))
    }

    /// Returns the tool of the release and the connection that watches its records.
    async fn connect(
        &self,
        desired: &Desired,
        cluster_uid: Option<&str>,
    ) -> Result<(PackageTool, Arc<Connection>), Failure> {
        let tools = &self.context.tools;
        let connected = |tool: PackageTool| {
            let connection = self.context.caches.connections.to(&desired.cluster, cluster_uid, tool.id());
            (tool, connection)
        };
        let format = self.status.package.as_ref().map(package_format);
        let chosen = match ToolChoice::new(format, self.deleting()) {
            ToolChoice::ByFormat(format) => return tools.for_format(&format).await.map(connected),
            ToolChoice::First => tools.all().first().cloned().map(connected),
            ToolChoice::ByRecord => {
                let all: Vec<_> = tools.all().iter().cloned().map(connected).collect();
                let record = |(_, connection): &(PackageTool, Arc<Connection>)| {
                    record_state(&connection.inventory(), &desired.release)
                };
                let records: Vec<_> = all.iter().map(record).collect();
                all.into_iter().nth(tool_with_record(&records))
            }
        };
        chosen.ok_or_else(|| Failure::new(Category::Internal, "there is no package tool"))
    }
}

/// Returns what the inventory of a tool shows about a release.
fn record_state(inventory: &InventoryView, release: &ReleaseId) -> RecordState {
    match inventory {
        InventoryView::Known(inventory) if inventory.newest(release).is_some() => RecordState::Present,
        InventoryView::Known(_) => RecordState::Absent,
        InventoryView::Loading | InventoryView::Unavailable(_) => RecordState::Unknown,
    }
}
