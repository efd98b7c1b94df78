//! Creates the ClusterGroup of a ClusterClass.

use std::sync::Arc;

use chandler_core::fleet::{FleetSettings, class_group};
use kube::{ResourceExt as _, api::DynamicObject, runtime::controller::Action};

use super::{
    FleetContext,
    caches::get,
    kinds,
    write::{self, FleetObject},
};
use crate::{ReconcileError, clusters::as_json, queue, status};

/// Reconciles a ClusterClass.
pub(super) async fn reconcile(
    class: Arc<DynamicObject>,
    context: Arc<FleetContext>,
) -> Result<Action, ReconcileError> {
    if !status::is_paused(&*class) {
        write::remove_caapf_finalizer(&context.client, &kinds::classes(), "ClusterClass", &class).await?;
    }
    let Ok(FleetSettings { classes: Some(settings), .. }) = context.caches.settings() else {
        return Ok(queue::resync(&*class));
    };
    if class.metadata.deletion_timestamp.is_none() {
        let namespace = class.namespace().unwrap_or_default();
        let existing = get(&context.caches.groups, kinds::groups(), &namespace, &class.name_any());
        let existing = existing.map(|group| as_json(&group));
        let target = FleetObject { resource: kinds::groups(), kind: kinds::CLASS, policy: settings.write };
        let wanted = class_group(settings, &as_json(&class));
        target.apply(&context.client, wanted, existing.as_ref()).await?;
    }
    Ok(queue::resync(&*class))
}
