//! Performs the actions of users. They do not use the proxies, so that faults do not affect them.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use chandler_api::capi::PAUSED_ANNOTATION;
use chandler_sandbox::{
    apply::apply,
    dynamic_api::{self, ignore_not_found},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Run, within};
use crate::{
    action::{Cluster, Placement, PlaneId, ReleaseId, UserAction},
    chart,
    mover::Mover,
    objects::{self, CLUSTERS, CONTROL_PLANES, Kind, kubeconfig_secret_name, release_name},
    observe::newest_record,
};

/// How long a deleted object may take to vanish before an object with the same name is created.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10);
const HELM_TIMEOUT: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Run<'_> {
    /// Performs an action. Returns false without a change if it is not possible now.
    pub(super) async fn perform_user_action(&mut self, action: UserAction) -> Result<bool> {
        match action {
            UserAction::CreatePlacement(placement) => return self.create_placement(placement).await,
            UserAction::DeletePlacement(placement) => {
                let deleted = self
                    .objects(objects::kind_of(placement))?
                    .delete(&placement.to_string(), &DeleteParams::default())
                    .await;
                ignore_not_found(deleted.map(drop))?;
            }
            UserAction::EditValues(placement, value) => {
                let (field, content) = objects::values(placement, value);
                self.patch_placement(placement, json!({"spec": {field: content}})).await?;
            }
            UserAction::EditVersion(placement, version) => {
                let (field, content) = objects::version(placement, version);
                self.patch_placement(placement, json!({"spec": {field: content}})).await?;
            }
            UserAction::PausePlacement(placement) => {
                self.patch_placement(placement, annotations(PAUSED_ANNOTATION, Some(""))).await?;
            }
            UserAction::ResumePlacement(placement) => {
                self.patch_placement(placement, annotations(PAUSED_ANNOTATION, None)).await?;
            }
            UserAction::PauseCluster(cluster) => {
                self.patch_cluster(cluster, json!({"spec": {"paused": true}})).await?;
            }
            UserAction::ResumeCluster(cluster) => {
                self.patch_cluster(cluster, json!({"spec": {"paused": false}})).await?;
            }
            UserAction::Select(release) => self.set_label(release, Some("on")).await?,
            UserAction::Deselect(release) => self.set_label(release, None).await?,
            UserAction::Annotate(cluster, value) => {
                let annotation = chart::annotation(value);
                self.patch_cluster(cluster, annotations("version", Some(&annotation))).await?;
            }
            UserAction::RecreateCluster(cluster) => self.recreate_cluster(cluster).await?,
            UserAction::RotateCredentials(cluster) => self.apply_kubeconfig(cluster).await?,
            UserAction::UpgradeKubernetes(cluster) => self.upgrade_kubernetes(cluster).await?,
            UserAction::Move => return self.move_objects().await,
            UserAction::HelmUpgrade(release) => return self.helm_upgrade(release).await,
            UserAction::HelmUninstall(release) => return self.helm_uninstall(release).await,
            UserAction::EditObject(release) => {
                let patch = Patch::Merge(json!({"data": {"note": "edited by hand"}}));
                let (maps, name) = self.object(release, 0)?;
                return Ok(
                    ignore_not_found(maps.patch(&name, &PatchParams::default(), &patch).await)?.is_some()
                );
            }
            UserAction::DeleteObject(release) => {
                let (maps, name) = self.object(release, 1)?;
                let deleted = maps.delete(&name, &DeleteParams::default()).await;
                return Ok(ignore_not_found(deleted.map(drop))?.is_some());
            }
        }
        Ok(true)
    }

    /// Creates a Cluster as the model describes it, its control plane and its kubeconfig.
    pub(super) async fn create_cluster(&mut self, cluster: Cluster) -> Result<()> {
        let version = self.model.kubernetes(cluster);
        apply(self.client()?, &objects::control_plane(&self.namespace, cluster, version)).await?;
        self.set_status(CONTROL_PLANES, cluster, objects::running(version)).await?;
        self.apply_kubeconfig(cluster).await?;
        let model = self.model.cluster(cluster).with_context(|| format!("no model of {}", cluster.name()))?;
        apply(self.client()?, &objects::cluster(&self.namespace, cluster, model)).await?;
        self.set_status(CLUSTERS, cluster, objects::initialized()).await
    }

    async fn create_placement(&self, placement: Placement) -> Result<bool> {
        let placements = self.objects(objects::kind_of(placement))?;
        if !wait_deleted(&placements, &placement.to_string()).await? {
            return Ok(false);
        }
        let object = objects::placement(&self.namespace, placement, self.environment.repository.url());
        apply(self.client()?, &object).await?;
        Ok(true)
    }

    async fn recreate_cluster(&mut self, cluster: Cluster) -> Result<()> {
        let secrets = dynamic_api::namespaced(self.client()?, &self.namespace, "v1", "Secret");
        let (clusters, control_planes) = (self.objects(CLUSTERS)?, self.objects(CONTROL_PLANES)?);
        ignore_not_found(clusters.delete(cluster.name(), &DeleteParams::default()).await.map(drop))?;
        let secret = kubeconfig_secret_name(cluster);
        ignore_not_found(secrets.delete(&secret, &DeleteParams::default()).await.map(drop))?;
        if !wait_deleted(&clusters, cluster.name()).await? {
            anyhow::bail!("Cluster {} was not deleted within {DELETION_TIMEOUT:?}", cluster.name());
        }
        ignore_not_found(control_planes.delete(cluster.name(), &DeleteParams::default()).await.map(drop))?;
        self.create_cluster(cluster).await
    }

    /// Upgrades the API server. The control plane announces the version before, and reports it afterwards.
    async fn upgrade_kubernetes(&self, cluster: Cluster) -> Result<()> {
        let next = self.model.next_kubernetes(cluster);
        let next = next.with_context(|| format!("{} has the newest Kubernetes version", cluster.name()))?;
        let spec = Patch::Merge(json!({"spec": {"version": next.to_string()}}));
        self.objects(CONTROL_PLANES)?.patch(cluster.name(), &PatchParams::default(), &spec).await?;
        self.environment.workload(cluster)?.plane.upgrade(self.environment.assets(next)?).await?;
        self.wait_reconnected(PlaneId::Workload(cluster)).await?;
        self.set_status(CONTROL_PLANES, cluster, objects::running(next)).await
    }

    /// Writes a kubeconfig with new credentials.
    async fn apply_kubeconfig(&mut self, cluster: Cluster) -> Result<()> {
        self.credentials += 1;
        let user = format!("{}-{}", self.namespace, self.credentials);
        let kubeconfig = self.environment.workload(cluster)?.new_kubeconfig(&user)?;
        apply(self.client()?, &objects::kubeconfig_secret(&self.namespace, cluster, &kubeconfig)).await?;
        Ok(())
    }

    async fn move_objects(&mut self) -> Result<bool> {
        let management = self.model.management();
        let mover = Mover {
            source: self.environment.management(management)?,
            target: self.environment.management(management.other())?,
            namespace: &self.namespace,
        };
        let start = Timestamp::now();
        let is_moved = mover.run(&self.model).await?;
        if is_moved {
            self.events.moves.push((start, Timestamp::now()));
        }
        Ok(is_moved)
    }

    async fn helm_upgrade(&self, release: ReleaseId) -> Result<bool> {
        let archive = self.environment.archive.to_string_lossy().into_owned();
        self.helm(release, "upgrade", &[&archive, "--reuse-values", "--set", "value=manual"]).await
    }

    async fn helm_uninstall(&self, release: ReleaseId) -> Result<bool> {
        self.helm(release, "uninstall", &[]).await
    }

    /// Runs the helm CLI, unless the release does not exist or an operation is pending, in which case helm would refuse.
    /// Its failure is no error: an operation of Chandler may run at the same time.
    async fn helm(&self, release: ReleaseId, verb: &str, arguments: &[&str]) -> Result<bool> {
        let name = release_name(&self.namespace, release.placement);
        let workload = self.environment.workload(release.cluster)?;
        let newest = newest_record(&workload.client, &name).await?;
        if newest.is_none_or(|record| record.status != "deployed") {
            return Ok(false);
        }
        let mut command = Command::new(self.environment.helm()?);
        command.args([verb, &name]).args(arguments).args(["--namespace", &name, "--timeout", "20s"]);
        command.arg("--kubeconfig").arg(workload.plane.kubeconfig_path());
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.environment.dir.join("helm"));
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        let running = async { command.output().await.context("starting helm") };
        let output = within(HELM_TIMEOUT, running).await?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            self.progress.advance(&format!("helm {verb:?} of {release} failed: {}", stderr.trim()));
        }
        Ok(true)
    }

    async fn set_label(&self, release: ReleaseId, value: Option<&str>) -> Result<()> {
        let patch = json!({"metadata": {"labels": {release.placement.to_string(): value}}});
        self.patch_cluster(release.cluster, patch).await
    }

    async fn patch_placement(&self, placement: Placement, patch: Value) -> Result<()> {
        let (placements, name) = (self.objects(objects::kind_of(placement))?, placement.to_string());
        placements.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn patch_cluster(&self, cluster: Cluster, patch: Value) -> Result<()> {
        self.objects(CLUSTERS)?.patch(cluster.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sets the status of an object that has the name of a cluster.
    async fn set_status(&self, kind: Kind, cluster: Cluster, status: Value) -> Result<()> {
        let patch = Patch::Merge(status);
        self.objects(kind)?.patch_status(cluster.name(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Returns the client of the management cluster that has the objects.
    fn client(&self) -> Result<&Client> {
        self.environment.management(self.model.management())
    }

    /// Returns the objects of a kind on that management cluster.
    fn objects(&self, (api_version, kind): Kind) -> Result<Api<DynamicObject>> {
        Ok(dynamic_api::namespaced(self.client()?, &self.namespace, api_version, kind))
    }

    /// Returns the ConfigMaps of a release, and the name of one of them.
    fn object(&self, release: ReleaseId, index: usize) -> Result<(Api<ConfigMap>, String)> {
        let name = release_name(&self.namespace, release.placement);
        let client = self.environment.workload(release.cluster)?.client.clone();
        Ok((Api::namespaced(client, &name), format!("{name}-{index}")))
    }
}

fn annotations(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// Waits until an object does not exist. Returns false if it still exists.
async fn wait_deleted(objects: &Api<DynamicObject>, name: &str) -> Result<bool> {
    let deadline = Instant::now() + DELETION_TIMEOUT;
    while objects.get_opt(name).await?.is_some() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(true)
}
