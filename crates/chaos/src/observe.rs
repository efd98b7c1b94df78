//! Records facts: the end state from the API servers, and what happened from their audit logs.

use anyhow::{Context as _, Result};
use chandler_api::{
    addons::{CHART_PROXY_NAME_LABEL, HelmReleaseProxy},
    extensions::{AddonRelease, INSTANCE_LABEL},
    status::{HEALTHY, ReleaseStatus},
};
use chandler_sandbox::requests::{AuditEntry, AuditLog};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{
    action::{ManagementCluster, PlaneId, ReleaseId},
    chart,
    client_process::process_of_address,
    environment::Environment,
    facts::{
        EndState, Events, ObservedRelease, Record, RecordWrite, ReleaseObject, RevisionEvent, RevisionStep,
    },
    model::Content,
    objects::{release_name, release_of_namespace, revision_of_record},
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
        let objects = release_objects(environment.management(management)?, namespace, management).await?;
        for (release, object) in objects {
            if let Some(observed) = state.releases.get_mut(&release) {
                observed.release_objects.push(object);
            }
        }
    }
    Ok(state)
}

/// Returns the HelmReleaseProxies and AddonReleases of a run on a management cluster.
async fn release_objects(
    client: &Client,
    namespace: &str,
    management: ManagementCluster,
) -> Result<Vec<(ReleaseId, ReleaseObject)>> {
    let mut found = Vec::new();
    let proxies: Api<HelmReleaseProxy> = Api::namespaced(client.clone(), namespace);
    for object in proxies.list(&ListParams::default()).await? {
        let placement = object.labels().get(CHART_PROXY_NAME_LABEL);
        let release = release_id(placement, object.spec.cluster_ref.name.as_deref());
        let described = release_object(management, object.metadata.generation, object.status.as_ref());
        found.extend(release.map(|release| (release, described)));
    }
    let releases: Api<AddonRelease> = Api::namespaced(client.clone(), namespace);
    for object in releases.list(&ListParams::default()).await? {
        let release = release_id(object.labels().get(INSTANCE_LABEL), Some(&object.spec.cluster));
        let described = release_object(management, object.metadata.generation, object.status.as_ref());
        found.extend(release.map(|release| (release, described)));
    }
    Ok(found)
}

/// Returns the release of a placement with this name on a cluster with this name.
fn release_id(placement: Option<&String>, cluster: Option<&str>) -> Option<ReleaseId> {
    ReleaseId::all().find(|release| {
        placement == Some(&release.placement.to_string()) && cluster == Some(release.cluster.name())
    })
}

fn release_object(
    management: ManagementCluster,
    generation: Option<i64>,
    status: Option<&ReleaseStatus>,
) -> ReleaseObject {
    let condition = |type_: &str| {
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let found = conditions.find(|condition| condition.type_ == type_);
        found.map_or_else(|| "missing".to_owned(), |found| found.status.clone())
    };
    ReleaseObject {
        management,
        ready: condition("Ready"),
        healthy: condition(HEALTHY),
        is_current: status.is_some_and(|status| status.observed_generation == generation),
        revision: status.and_then(|status| status.revision),
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
    // A hook that was interrupted leaves its object, which no later revision needs or removes.
    let is_of_release = |object: &str| object.starts_with(name) && chart::hook(name, object).is_none();
    let of_release = all.iter().filter(|map| is_of_release(&map.name_any()));
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
            for entry in &entries {
                let is_written_by_chandler = is_write_of_chandler(entry);
                if is_written_by_chandler {
                    writes.push(describe(*id, entry));
                }
                if let PlaneId::Workload(cluster) = id
                    && let Some(release) = release_of_namespace(namespace, *cluster, &entry.namespace)
                    && (200..300).contains(&entry.code)
                {
                    events.revisions.extend(revision_event(release, entry));
                    if is_written_by_chandler {
                        record(release, entry, events);
                    }
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

/// Returns the step of a revision that a successful request of any client is.
fn revision_event(release: ReleaseId, entry: &AuditEntry) -> Option<RevisionEvent> {
    let AuditEntry { verb, resource, namespace, name, .. } = entry;
    let (revision, step) = match (resource.as_str(), verb.as_str()) {
        ("secrets", "create") => (revision_of_record(name)?, RevisionStep::Created),
        // Server-side apply is a patch.
        ("configmaps", "create" | "patch") => {
            let (hook, revision) = chart::hook(namespace, name)?;
            (revision, RevisionStep::HookRan(hook))
        }
        _ => return None,
    };
    let pid = process_of_address(&entry.source_ip);
    Some(RevisionEvent { release, revision, step, pid, at: entry.received })
}

/// Records a successful write of Chandler to a release record, or its deletion of an object of a release.
fn record(release: ReleaseId, entry: &AuditEntry, events: &mut Events) {
    match entry.resource.as_str() {
        "secrets" => events.record_writes.push(RecordWrite {
            release,
            pid: process_of_address(&entry.source_ip),
            verb: entry.verb.clone(),
            at: entry.received,
        }),
        "configmaps" if entry.verb == "delete" && chart::hook(&entry.namespace, &entry.name).is_none() => {
            events.removals.insert(release);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        action::{Cluster, Placement},
        chart::Hook,
    };

    const RELEASE: ReleaseId = ReleaseId { placement: Placement(1), cluster: Cluster::Alpha };

    fn entry(verb: &str, resource: &str, name: &str) -> AuditEntry {
        AuditEntry {
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: "run-1-p1".to_owned(),
            name: name.to_owned(),
            uri: String::new(),
            user: "admin".to_owned(),
            impersonated: None,
            user_agent: "chandler-helm".to_owned(),
            source_ip: "127.0.1.1".to_owned(),
            code: 201,
            received: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn revisions_and_their_hooks_are_recorded() {
        let step = |verb, resource, name| {
            let event = revision_event(RELEASE, &entry(verb, resource, name))?;
            assert_eq!(event.pid, Some(257));
            Some((event.revision, event.step))
        };
        assert_eq!(
            step("create", "secrets", "sh.helm.release.v1.run-1-p1.v3"),
            Some((3, RevisionStep::Created))
        );
        for verb in ["create", "patch"] {
            assert_eq!(
                step(verb, "configmaps", "run-1-p1-hook-pre-3"),
                Some((3, RevisionStep::HookRan(Hook::Pre)))
            );
        }
        assert_eq!(step("update", "secrets", "sh.helm.release.v1.run-1-p1.v3"), None);
        assert_eq!(step("delete", "configmaps", "run-1-p1-hook-pre-3"), None);
        assert_eq!(step("patch", "configmaps", "run-1-p1-0"), None);
    }

    #[test]
    fn the_removal_of_a_hook_is_not_the_removal_of_a_release() {
        let mut events = Events::default();
        record(RELEASE, &entry("delete", "configmaps", "run-1-p1-hook-pre-3"), &mut events);
        assert_eq!(events, Events::default());
        record(RELEASE, &entry("delete", "configmaps", "run-1-p1-2"), &mut events);
        assert_eq!(events.removals, [RELEASE].into());
    }

    #[test]
    fn release_objects_belong_to_a_placement_and_a_cluster() {
        let placement = "p1".to_owned();
        assert_eq!(release_id(Some(&placement), Some("alpha")), Some(RELEASE));
        assert_eq!(release_id(Some(&placement), Some("charlie")), None);
        assert_eq!(release_id(None, Some("alpha")), None);
    }
}
