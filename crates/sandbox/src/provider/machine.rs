//! Reconciles `SandboxMachine`: creates a Node on the workload cluster. Cluster API deletes the Node with the Machine.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::condition::ObservedCondition;
use super::planes::ClusterKey;
use super::sandbox_machine::{MachineInitialization, SandboxMachine, SandboxMachineStatus};
use super::{Context, Error};

const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// How often a machine checks whether its cluster is reachable.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn reconcile(object: Arc<SandboxMachine>, context: Arc<Context>) -> Result<Action, Error> {
    let provisioned = object.status.as_ref().is_some_and(|status| status.initialization.is_some());
    if object.meta().deletion_timestamp.is_some() || provisioned {
        return Ok(Action::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let (Some(version), Some(cluster)) =
        (version(&object, &context.client).await?, object.labels().get(CLUSTER_NAME))
    else {
        return Ok(Action::await_change());
    };
    let key = ClusterKey::new(&namespace, cluster);
    let plane = context.planes.get(&key).await.filter(|_| context.reachable.contains(&key));
    let Some(plane) = plane else { return Ok(Action::requeue(POLL_INTERVAL)) };
    let name = object.name_any();
    let provider_id = format!("sandbox://{namespace}/{name}");
    plane.add_node(&name, &provider_id, &version).await?;
    write_provisioned(&Api::namespaced(context.client.clone(), &namespace), &object, &provider_id).await?;
    Ok(Action::await_change())
}

/// Returns the version of the owning Machine, or `None` until Cluster API has set the owner reference.
async fn version(object: &SandboxMachine, client: &kube::Client) -> Result<Option<String>, Error> {
    let Some(owner) = object.owner_references().iter().find(|owner| owner.kind == "Machine") else {
        return Ok(None);
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let namespace = object.namespace().unwrap_or_default();
    let machines: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let machine = machines.get_opt(&owner.name).await.map_err(Error::read("the owning Machine"))?;
    let version = machine.and_then(|machine| machine.data.pointer("/spec/version").cloned());
    Ok(version.as_ref().and_then(Value::as_str).map(str::to_owned))
}

async fn write_provisioned(
    api: &Api<SandboxMachine>,
    object: &SandboxMachine,
    provider_id: &str,
) -> Result<(), Error> {
    let name = object.name_any();
    let spec = Patch::Merge(json!({"spec": {"providerID": provider_id}}));
    api.patch(&name, &PatchParams::default(), &spec)
        .await
        .map_err(Error::write("the provider ID of a SandboxMachine"))?;
    let ready =
        ObservedCondition { type_: "Ready", status: true, reason: "Provisioned", message: String::new() };
    let status = SandboxMachineStatus {
        initialization: Some(MachineInitialization { provisioned: true }),
        conditions: vec![ready.to_condition(&[], object.metadata.generation)],
    };
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status})))
        .await
        .map_err(Error::write("the status of a SandboxMachine"))?;
    Ok(())
}
