//! The cluster as a reconcile sees it.

use std::sync::Arc;

use chandler_api::extensions::{DriftMode, OnFailure};
use chandler_core::{
    failure::{Category, Failure},
    identity::ReleaseId,
    release::{
        ClusterState, Desired, RecordState, ReleaseKind, RollbackRequest, ToolChoice, tool_with_record,
    },
    target::Target,
};
use chandler_tool::PackageTool;
use chandler_workload::{Connection, InventoryView};
use kube::core::NamespaceResourceScope;

use super::{Reconciler, package_format};
use crate::clusters::ClusterFacts;

/// Capabilities of tools.
const ROLLBACK: &str = "rollback";
const COMPARE: &str = "compare";
const TEST: &str = "test";

/// The cluster as a reconcile sees it.
pub(super) struct View {
    pub facts: ClusterFacts,
    /// The tool of the release and the connection that watches its records. `None` means that the cluster is not connected.
    pub connected: Option<(PackageTool, Arc<Connection>)>,
    pub inventory: InventoryView,
    /// Whether a rollback is possible, if the policy wants one.
    pub can_roll_back: bool,
    /// Whether the policy wants objects to be compared, and the tool cannot do it.
    pub lacks_compare: bool,
    /// Whether the policy wants tests, and the tool cannot run them.
    pub lacks_test: bool,
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
            || desired.remove_with_cluster && facts.waits_for_uninstalls(self.now);
        let unconnected = |facts, inventory| View {
            facts,
            connected: None,
            inventory,
            can_roll_back: false,
            lacks_compare: false,
            lacks_test: false,
        };
        if !reachable {
            return unconnected(facts, InventoryView::Loading);
        }
        match self.connect(desired, facts.uid.as_deref()).await {
            Ok((tool, connection)) => View {
                facts,
                inventory: connection.inventory(),
                can_roll_back: self.can_roll_back(&tool).await,
                lacks_compare: self.lacks_compare(&tool).await,
                lacks_test: self.lacks_test(&tool).await,
                connected: Some((tool, connection)),
            },
            Err(failure) => unconnected(facts, InventoryView::Unavailable(failure)),
        }
    }

    /// Returns whether the policy wants objects to be compared, and the tool cannot do it.
    async fn lacks_compare(&self, tool: &PackageTool) -> bool {
        let is_wanted = self.placement.policy.effective().drift.mode != DriftMode::Ignore;
        is_wanted && !has_capability(tool, COMPARE).await
    }

    /// Returns whether the policy wants tests, and the tool cannot run them.
    async fn lacks_test(&self, tool: &PackageTool) -> bool {
        self.placement.policy.effective().test.is_some() && !has_capability(tool, TEST).await
    }

    /// Returns whether the policy rolls back, or a user has asked for it, and the tool can do it.
    async fn can_roll_back(&self, tool: &PackageTool) -> bool {
        let remediation = self.placement.policy.effective().remediation;
        let is_requested =
            self.placement.aborted_from.is_some() || RollbackRequest::of(&*self.object).is_some();
        let is_remediation = self.status.last_failure.is_some()
            && remediation.is_some_and(|remediation| remediation.on_failure == OnFailure::Rollback);
        if !is_requested && !is_remediation {
            return false;
        }
        has_capability(tool, ROLLBACK).await
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
            (tool.in_namespace(&desired.cluster.namespace), connection)
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

/// Returns whether a tool has a capability. One that does not answer may have it.
async fn has_capability(tool: &PackageTool, capability: &str) -> bool {
    let description = tool.description().await;
    description.map_or(true, |description| description.capabilities.iter().any(|one| one == capability))
}

/// Returns what the inventory of a tool shows about a release.
fn record_state(inventory: &InventoryView, release: &ReleaseId) -> RecordState {
    match inventory {
        InventoryView::Known(inventory) if inventory.newest(release).is_some() => RecordState::Present,
        InventoryView::Known(_) => RecordState::Absent,
        InventoryView::Loading | InventoryView::Unavailable(_) => RecordState::Unknown,
    }
}
