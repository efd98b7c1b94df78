//! Tries stalled releases again, as their users would: the driver was killed several times in a row while it worked on them.

use anyhow::Result;
use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{AddonRelease, RETRY_ANNOTATION},
    reasons::ReleaseReason,
    status::ReleaseStatus,
};
use chandler_sandbox::dynamic_api::ignore_not_found;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::Run;
use crate::action::ManagementCluster;

impl Run<'_> {
    /// Requests a retry of all stalled releases.
    pub(super) async fn retry_stalled(&self) -> Result<()> {
        let retry = Patch::Merge(
            json!({"metadata": {"annotations": {RETRY_ANNOTATION: Timestamp::now().to_string()}}}),
        );
        for management in ManagementCluster::ALL {
            let client = self.environment.management(management)?;
            let charts: Api<HelmReleaseProxy> = Api::namespaced(client.clone(), &self.namespace);
            for release in charts.list(&ListParams::default()).await? {
                if is_stalled(release.status.as_ref()) {
                    let retried = charts.patch(&release.name_any(), &PatchParams::default(), &retry).await;
                    ignore_not_found(retried.map(drop))?;
                }
            }
            let addons: Api<AddonRelease> = Api::namespaced(client.clone(), &self.namespace);
            for release in addons.list(&ListParams::default()).await? {
                if is_stalled(release.status.as_ref()) {
                    let retried = addons.patch(&release.name_any(), &PatchParams::default(), &retry).await;
                    ignore_not_found(retried.map(drop))?;
                }
            }
        }
        Ok(())
    }
}

fn is_stalled(status: Option<&ReleaseStatus>) -> bool {
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    conditions
        .any(|one| one.type_ == "Ready" && ReleaseReason::parse(&one.reason) == Some(ReleaseReason::Stalled))
}
