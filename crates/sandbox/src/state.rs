//! Reads the state of a sandbox from its folder and its management cluster. Works in any process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::Kubeconfig;
use serde::Serialize;

use crate::process::{Identity, resident_memory};
use crate::provider::{ClusterKey, Planes, cluster_resource};
use crate::sandbox::{Folder, MANAGEMENT};
use crate::{clusters, kubeconfig};

/// A snapshot of a sandbox.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub running: bool,
    /// The PID of the process that runs the sandbox.
    pub owner: Option<u32>,
    pub planes: Vec<PlaneState>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaneState {
    /// The name that `chandler-sandbox kubeconfig` takes.
    pub name: String,
    pub endpoint: String,
    pub kubeconfig: PathBuf,
    /// Whether the Cluster is Available. `None` for the management cluster, and while that does not respond.
    pub available: Option<bool>,
    /// Why the Cluster is not Available.
    pub message: Option<String>,
    pub processes: Vec<ProcessState>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessState {
    pub name: String,
    pub pid: u32,
    pub memory_bytes: u64,
}

impl State {
    pub async fn read(folder: &Folder) -> Self {
        let owner = folder.owner();
        let reported = if owner.is_some() {
            reported_clusters(folder).await.unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        let mut planes = Vec::new();
        if let Some(mut management) = plane_state(MANAGEMENT, &folder.management()) {
            management.processes.extend(processes(&folder.capi()));
            planes.push(management);
        }
        for (key, path) in Planes::folders(&folder.planes()) {
            let name = display_name(&key);
            if let Some(mut plane) = plane_state(&name, &path) {
                let reported = reported.get(&name);
                plane.available = reported.map(Option::is_none);
                plane.message = reported.cloned().flatten();
                planes.push(plane);
            }
        }
        Self { running: owner.is_some(), owner: owner.map(|owner| owner.pid()), planes }
    }

    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    pub fn to_yaml(&self) -> Result<String, serde_saphyr::ser::Error> {
        serde_saphyr::to_string(self)
    }

    /// Returns the resident memory of all processes.
    pub fn memory_bytes(&self) -> u64 {
        self.planes.iter().map(PlaneState::memory_bytes).sum()
    }
}

impl PlaneState {
    pub fn memory_bytes(&self) -> u64 {
        self.processes.iter().map(|process| process.memory_bytes).sum()
    }
}

/// Returns the name of a cluster, as `namespace/name` unless it is in the default namespace of the sandbox.
fn display_name(key: &ClusterKey) -> String {
    if key.namespace == clusters::NAMESPACE {
        key.name.clone()
    } else {
        format!("{}/{}", key.namespace, key.name)
    }
}

fn plane_state(name: &str, folder: &Path) -> Option<PlaneState> {
    let path = folder.join("kubeconfig");
    let kubeconfig = Kubeconfig::from_yaml(&fs::read_to_string(&path).ok()?).ok()?;
    let endpoint = kubeconfig.clusters.first()?.cluster.as_ref()?.server.clone()?;
    Some(PlaneState {
        name: name.to_owned(),
        endpoint,
        kubeconfig: path,
        available: None,
        message: None,
        processes: processes(folder),
    })
}

fn processes(folder: &Path) -> Vec<ProcessState> {
    let Ok(entries) = fs::read_dir(folder.join("run")) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let identity: Identity = fs::read_to_string(entry.path()).ok()?.parse().ok()?;
            identity.is_running().then(|| ProcessState {
                name: entry.file_name().to_string_lossy().into_owned(),
                pid: identity.pid(),
                memory_bytes: resident_memory(identity.pid()).unwrap_or(0),
            })
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Returns the Clusters by name, with a message for each that is not Available.
async fn reported_clusters(folder: &Folder) -> Option<BTreeMap<String, Option<String>>> {
    let yaml = fs::read_to_string(folder.management().join("kubeconfig")).ok()?;
    let client = kubeconfig::client(&yaml).await.ok()?;
    let api: Api<DynamicObject> = Api::all_with(client, &cluster_resource());
    let list = api.list(&ListParams::default()).await.ok()?;
    let reported = list.into_iter().map(|cluster| {
        let key = ClusterKey::new(&cluster.namespace().unwrap_or_default(), &cluster.name_any());
        (display_name(&key), clusters::unavailable_message(&cluster.data))
    });
    Some(reported.collect())
}
