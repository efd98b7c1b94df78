//! Reports whether the FleetAddonConfig can be used, and which of its fields are not acted upon.

use std::sync::Arc;

use chandler_api::{FIELD_MANAGER, addons::FleetAddonConfigStatus};
use chandler_core::fleet::{FleetState, is_reported, report};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    runtime::controller::Action,
};
use serde::Deserialize as _;
use serde_json::json;

use super::{FleetContext, caches::spec_of, kinds};
use crate::{ManagementError, ReconcileError, error::write_result, queue};

/// Reconciles the config.
pub(super) async fn reconcile(
    config: Arc<DynamicObject>,
    context: Arc<FleetContext>,
) -> Result<Action, ReconcileError> {
    let state = match context.caches.settings() {
        Ok(_) => FleetState::Ready,
        Err(why) => FleetState::Invalid(why),
    };
    update_status(&context.client, &config, &state).await?;
    Ok(queue::resync(&*config))
}

/// Writes the status if it differs.
pub(super) async fn update_status(
    client: &Client,
    config: &DynamicObject,
    state: &FleetState,
) -> Result<(), ManagementError> {
    let old = FleetAddonConfigStatus::deserialize(&config.data["status"]).unwrap_or_default();
    let spec = spec_of(config).ok();
    let new = report(&old, spec.as_ref(), state, config.metadata.generation, Timestamp::now());
    if is_reported(&old, &new) {
        return Ok(());
    }
    let (resource, name) = (kinds::configs(), config.name_any());
    let patch = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": name, "uid": config.uid()}, "status": new,
    });
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let result = configs.patch_status(&name, &parameters, &Patch::Apply(patch)).await;
    write_result(kinds::CONFIG, name, result).map(drop)
}
