//! Records facts: the end state from the API servers, and what happened from their audit logs.

use anyhow::{Context as _, Result};
use chandler_api::addons::{CHART_PROXY_NAME_LABEL, HelmReleaseProxy};
use chandler_sandbox::requests::{AuditEntry, AuditLog};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{
    action::{Cluster, ManagementCluster, PlaneId, ReleaseId},
    chart,
    client_process::process_of_address,
    environment::Environment,
    facts::{EndState, Events, ObservedRelease, Record, RecordWrite, ReleaseObject},
    model::Content,
    objects::{release_name, release_of_namespace},
};

/// Reads the state of all releases of a run.
pub async fn end_state(environment: &Environment, namespace: &str) -> Result<EndState> {
    let mut state = EndState::default();
    for release in ReleaseId::all() {
        let client = &environment.workload(release.cluster)?.client;
        let name = release_name(namespace, release.placement);
        let observed = ObservedRelease {
            newest: newest_record(client, &name).await?,
            objects: objects(client, &name).await?,
            release_objects: Vec::new(),
        };
        state.releases.insert(release, observed);
    }
    for management in ManagementCluster::ALL {
        let objects: Api<HelmReleaseProxy> =
            Api::namespaced(environment.management(management)?.clone(), namespace);
        for object in objects.list(&ListParams::default()).await? {
            let release = ReleaseId::all().find(|release| is_of(&object, *release));
            if let Some(observed) = release.and_then(|release| state.releases.get_mut(&release)) {
                observed.release_objects.push(release_object(management, &object));
            }
        }
    }
    Ok(state)
}

fn is_of(object: &HelmReleaseProxy, release: ReleaseId) -> bool {
    object.labels().get(CHART_PROXY_NAME_LABEL) == Some(&release.placement.to_string())
        && object.spec.cluster_ref.name.as_deref() == Some(release.cluster.name())
}

fn release_object(management: ManagementCluster, object: &HelmReleaseProxy) -> ReleaseObject {
    let status = object.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ReleaseObject {
        management,
        ready: ready.map_or_else(|| "missing".to_owned(), |ready| ready.status.clone()),
        is_current: status.observed_generation == object.metadata.generation,
        revision: status.revision,
    }
}

/// Returns the newest release record of the release with this name, which is also its namespace.
pub async fn newest_record(client: &Client, name: &str) -> Result<Option<Record>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), name);
    let selector = ListParams::default().labels(&format!("owner=helm,name={name}"));
    let records = secrets.list(&selector).await?;
    let record = |secret: &Secret| {
        let labels = secret.labels();
        Some(Record { revision: labels.get("version")?.parse().ok()?, status: labels.get("status")?.clone() })
    };
    Ok(records.iter().filter_map(record).max_by_key(|record| record.revision))
}

async fn objects(client: &Client, name: &str) -> Result<Vec<Option<Content>>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    let all = maps.list(&ListParams::default()).await?;
    let of_release = all.iter().filter(|map| map.name_any().starts_with(name));
    Ok(of_release.map(|map| map.data.as_ref().and_then(chart::content)).collect())
}

/// Readers of the audit logs of all API servers.
pub struct AuditLogs {
    logs: Vec<(PlaneId, AuditLog)>,
}

impl AuditLogs {
    /// Returns readers that start at the current end of the logs.
    pub fn new(environment: &Environment) -> Result<Self> {
        let log = |id| Ok((id, environment.plane(id)?.plane.audit_log()));
        Ok(Self { logs: PlaneId::ALL.into_iter().map(log).collect::<Result<_>>()? })
    }

    /// Adds new entries to the events of a run. Returns the writes of Chandler, without those to Leases.
    pub fn read(&mut self, namespace: &str, events: &mut Events) -> Result<Vec<String>> {
        let mut writes = Vec::new();
        for (id, log) in &mut self.logs {
            let entries = log.read().with_context(|| format!("reading the audit log of {}", id.name()))?;
            for entry in entries.iter().filter(|entry| is_write_of_chandler(entry)) {
                writes.push(describe(*id, entry));
                if let PlaneId::Workload(cluster) = id {
                    record(namespace, *cluster, entry, events);
                }
            }
        }
        Ok(writes)
    }
}

fn is_write_of_chandler(entry: &AuditEntry) -> bool {
    entry.is_from_chandler() && entry.is_write() && entry.resource != "leases"
}

fn describe(id: PlaneId, entry: &AuditEntry) -> String {
    let AuditEntry { verb, resource, subresource, namespace, name, code, received, .. } = entry;
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{received} {}: {verb} {resource}{slash}{subresource} {namespace}/{name} → {code}", id.name())
}

/// Records a successful write to a release record, or the deletion of an object of a release.
fn record(namespace: &str, cluster: Cluster, entry: &AuditEntry, events: &mut Events) {
    let Some(release) = release_of_namespace(namespace, cluster, &entry.namespace) else { return };
    if !(200..300).contains(&entry.code) {
        return;
    }
    match entry.resource.as_str() {
        "secrets" => events.record_writes.push(RecordWrite {
            release,
            pid: process_of_address(&entry.source_ip),
            verb: entry.verb.clone(),
            at: entry.received,
        }),
        "configmaps" if entry.verb == "delete" => {
            events.removals.insert(release);
        }
        _ => {}
    }
}
