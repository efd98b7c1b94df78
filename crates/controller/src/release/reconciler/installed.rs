//! Records whether a release has been installed before.

use chandler_api::extensions::INSTALLED_ON_ANNOTATION;
use chandler_core::{
    inventory::ReleaseStatus,
    release::{Desired, ReleaseKind, Strategy},
};
use chandler_workload::InventoryView;
use kube::core::NamespaceResourceScope;

use super::{Reconciler, View};
use crate::ManagementError;

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Records that the release has been installed, for objects that install once.
    pub(super) async fn mark_installed(&self, desired: &Desired, view: &View) -> Result<(), ManagementError> {
        let uid = &view.facts.uid;
        if desired.strategy != Strategy::InstallOnce
            || self.object.is_marked_installed(uid.as_deref())
            || !matches!(view.inventory, InventoryView::Known(_))
            || self.status.status != ReleaseStatus::Deployed.as_str()
        {
            return Ok(());
        }
        let annotations =
            [(R::INSTALLED_ANNOTATION, Some("true".to_owned())), (INSTALLED_ON_ANNOTATION, uid.clone())];
        self.annotate(&annotations.into_iter().collect()).await
    }
}
