//! Reconciles `SandboxBootstrap`: reports that the bootstrap data exists.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::json;

use super::sandbox_bootstrap::{BootstrapInitialization, SandboxBootstrap, SandboxBootstrapStatus};
use super::{Context, Error};

pub(super) async fn reconcile(object: Arc<SandboxBootstrap>, context: Arc<Context>) -> Result<Action, Error> {
    let status = SandboxBootstrapStatus {
        initialization: Some(BootstrapInitialization { data_secret_created: true }),
        data_secret_name: Some(object.name_any()),
    };
    if object.metadata.deletion_timestamp.is_none() && object.status.as_ref() != Some(&status) {
        let namespace = object.namespace().unwrap_or_default();
        let api: Api<SandboxBootstrap> = Api::namespaced(context.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&object.name_any(), &PatchParams::default(), &patch)
            .await
            .map_err(Error::write("the status of a SandboxBootstrap"))?;
    }
    Ok(Action::await_change())
}
