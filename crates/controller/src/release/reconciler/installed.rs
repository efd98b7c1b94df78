//! Records whether a release has been installed before.

use chandler_api::extensions::INSTALLED_ON_ANNOTATION;
use chandler_core::{
    inventory::ReleaseStatus,
    release::{Desired, ReleaseKind, Strategy},
};
use chandler_workload::InventoryView;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde_json::json;

use super::{Reconciler, View};
use crate::{ManagementError, status};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Records that the release has been installed, for objects that install once.
    pub(super) async fn mark_installed(&self, desired: &Desired, view: &View) -> Result<(), ManagementError> {
        let uid = &view.facts.uid;
        if desired.strategy != Strategy::InstallOnce
            || self.installed_before(desired.strategy, uid.as_deref())
            || !matches!(view.inventory, InventoryView::Known(_))
            || self.status.status != ReleaseStatus::Deployed.as_str()
        {
            return Ok(());
        }
        let annotations = json!({R::INSTALLED_ANNOTATION: "true", INSTALLED_ON_ANNOTATION: uid});
        let patch = json!({"metadata": {"annotations": annotations}});
        let name = self.object.name_any();
        status::api(&self.context.client, &*self.object)
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(|source| ManagementError::Write { kind: status::kind::<R>(), name, source })
    }

    /// Returns whether the release has been installed before. If it is installed once, on the Cluster with this uid.
    pub(super) fn installed_before(&self, strategy: Strategy, cluster_uid: Option<&str>) -> bool {
        match strategy {
            Strategy::Continuous => self.status.inventory_revision.is_some(),
            Strategy::InstallOnce => self.object.is_marked_installed(cluster_uid),
        }
    }
}
