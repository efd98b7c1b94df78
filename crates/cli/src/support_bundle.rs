//! `chandler support-bundle`: what someone who helps needs to see, and no secrets.

mod archive;
mod redact;

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, Result};
use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams},
};
use serde_json::{Value, json};

use self::{archive::Archive, redact::redact};
use crate::{
    connection::Connection,
    doctor::{self, ManagerPlace},
    fleet::Reader,
    get::{Filter, Listing},
};

const PAGE: u32 = 500;
/// Port of the manager's metrics.
const METRICS_PORT: u16 = 8080;
/// The end of a log that is taken.
const LOG_LINES: i64 = 20_000;

/// Collect what someone who helps needs to see in one archive, without secrets
///
/// Objects of Chandler's kinds, Clusters, Events, the leader Lease, what `get` and `doctor` say, and the manager's log and
/// metrics as far as they can be reached. Values, templates, parameters, topology variables, foreign annotations and
/// passwords in addresses are taken out; Secrets are never read.
#[derive(Debug, Args)]
pub struct SupportBundleArgs {
    /// Where the archive goes [default: chandler-support.tar.gz]
    #[arg(long, value_name = "FILE", default_value = "chandler-support.tar.gz", hide_default_value = true)]
    output_file: PathBuf,
    /// Only objects of this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    manager: ManagerPlace,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(arguments: SupportBundleArgs) -> Result<()> {
    let SupportBundleArgs { output_file, namespace, manager, connection } = arguments;
    let client = connection.client().await?;
    let version =
        client.apiserver_version().await.context("asking the management cluster for its version")?;
    let mut collector = Collector { client, namespace, archive: Archive::default(), missing: Vec::new() };
    let about = json!({
        "chandler": env!("CARGO_PKG_VERSION"), "kubernetes": version.git_version,
        "taken": Timestamp::now().to_string(), "namespace": collector.namespace,
    });
    collector.archive.json("about.json", &about)?;
    collector.objects().await?;
    collector.events().await?;
    collector.judgement(&manager).await?;
    collector.manager(&manager.manager_namespace).await?;
    let Collector { mut archive, missing, .. } = collector;
    archive.text("missing.txt", &missing.join("\n"));
    archive.write(&output_file)?;
    println!("wrote {} ({} files)", output_file.display(), archive.len());
    for what in missing {
        eprintln!("not in it: {what}");
    }
    println!(
        "Look at it before you send it: names of clusters, namespaces, charts and repositories are in it."
    );
    Ok(())
}

struct Collector {
    client: Client,
    namespace: Option<String>,
    archive: Archive,
    /// What could not be had, and why.
    missing: Vec<String>,
}

impl Collector {
    /// Objects of our kinds, and Clusters.
    async fn objects(&mut self) -> Result<()> {
        let ours = chandler_api::crds().into_iter().filter_map(|definition| {
            let names = definition.spec.names;
            let kind = GroupVersionKind::gvk(
                &definition.spec.group,
                &definition.spec.versions.first()?.name,
                &names.kind,
            );
            Some(ApiResource::from_gvk_with_plural(&kind, &names.plural))
        });
        let clusters = GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster");
        let all: Vec<_> = ours.chain([ApiResource::from_gvk_with_plural(&clusters, "clusters")]).collect();
        for resource in all {
            let name = format!("objects/{}.{}.json", resource.plural, resource.group);
            match self.list(&resource).await {
                Ok(objects) => self.archive.json(&name, &objects)?,
                Err(error) => self.missing.push(format!("{name}: {error}")),
            }
        }
        Ok(())
    }

    async fn list(&self, resource: &ApiResource) -> kube::Result<Vec<Value>> {
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let mut page = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let list = api.list(&page).await?;
            for object in list.items {
                let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                redact(&mut object);
                all.push(object);
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// Events about our kinds and Clusters.
    async fn events(&mut self) -> Result<()> {
        let kinds: BTreeSet<String> =
            chandler_api::crds().into_iter().map(|definition| definition.spec.names.kind).collect();
        let api: Api<Event> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let about = |event: &Event| {
            let kind = event.regarding.as_ref().and_then(|about| about.kind.as_deref()).unwrap_or_default();
            kinds.contains(kind) || kind == "Cluster"
        };
        match api.list(&ListParams::default()).await {
            Ok(events) => {
                let mut events =
                    serde_json::to_value(events.items.into_iter().filter(about).collect::<Vec<_>>())?;
                redact(&mut events);
                self.archive.json("events.json", &events)
            }
            Err(error) => {
                self.missing.push(format!("events.json: {error}"));
                Ok(())
            }
        }
    }

    /// What our own commands say.
    async fn judgement(&mut self, manager: &ManagerPlace) -> Result<()> {
        match doctor::examine(&self.client, self.namespace.clone(), manager).await {
            Ok(report) => self.archive.json("doctor.json", &report)?,
            Err(error) => self.missing.push(format!("doctor.json: {error:#}")),
        }
        match Reader::new(self.client.clone(), self.namespace.clone()).fleet().await {
            Ok(fleet) => self.archive.json("fleet.json", &Listing::of(&fleet, &Filter::default()))?,
            Err(error) => self.missing.push(format!("fleet.json: {error:#}")),
        }
        Ok(())
    }

    /// Lease, logs and metrics.
    async fn manager(&mut self, namespace: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        match leases.list(&ListParams::default()).await {
            Ok(leases) => self.archive.json("leases.json", &leases.items)?,
            Err(error) => self.missing.push(format!("leases.json: {error}")),
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let names: Vec<String> = match pods.list_metadata(&ListParams::default()).await {
            Ok(list) => list.items.iter().map(kube::ResourceExt::name_any).collect(),
            Err(error) => {
                self.missing.push(format!("logs and metrics: {error}"));
                return Ok(());
            }
        };
        if names.is_empty() {
            self.missing.push(format!("logs and metrics: no Pod runs in namespace {namespace}"));
        }
        for name in names {
            self.pod(&pods, namespace, &name).await;
        }
        Ok(())
    }

    async fn pod(&mut self, pods: &Api<Pod>, namespace: &str, name: &str) {
        let parameters = LogParams { tail_lines: Some(LOG_LINES), timestamps: true, ..LogParams::default() };
        match pods.logs(name, &parameters).await {
            Ok(log) => self.archive.text(&format!("logs/{name}.log"), &log),
            Err(error) => self.missing.push(format!("logs/{name}.log: {error}")),
        }
        match self.metrics(namespace, name).await {
            Ok(metrics) => self.archive.text(&format!("metrics/{name}.txt"), &metrics),
            Err(error) => self.missing.push(format!("metrics/{name}.txt: {error:#}")),
        }
    }

    /// Through the API server, if the manager listens on more than loopback.
    async fn metrics(&self, namespace: &str, pod: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics");
        Ok(self.client.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }
}
