//! `chandler support-bundle`: what someone who helps needs to see, and no secrets.

mod archive;
mod redact;
mod withheld;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION};
use chandler_view::{
    fleet::Reader,
    listing::{Filter, Listing},
};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Pod, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use self::{
    archive::Archive,
    redact::{redact, secrets_of},
    withheld::Withheld,
};
use crate::{
    connection::Connection,
    doctor::{self, ManagerPlace},
    progress::Progress,
};

const PAGE: u32 = 500;
/// Fields that name things, and stay.
const NAMES: [&str; 4] = ["/spec/chartName", "/spec/releaseName", "/spec/namespace", "/spec/cluster"];
/// Port of the manager's metrics.
const METRICS_PORT: u16 = 8080;
/// The end of a log that is taken.
const LOG_LINES: usize = 20_000;
/// How long a manager may take to tell its metrics.
const METRICS_LIMIT: Duration = Duration::from_secs(10);

/// Collect what someone who helps needs to see in one archive, without secrets
///
/// Objects of Chandler's kinds, Clusters, Events, the leader Lease, what `get` and `doctor` say, and the manager's log and
/// metrics as far as they can be reached. Values, templates, parameters, topology variables and foreign annotations are
/// taken out, and whatever is in them, in Secrets that objects name, or looks like a password, token or key is taken out
/// of every text. Secrets themselves are never in it.
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
    /// Where a manager that is not a Pod serves its metrics, for example 127.0.0.1:8080
    #[arg(long, value_name = "HOST:PORT")]
    manager_address: Option<String>,
    /// The log of a manager that is not a Pod
    #[arg(long, value_name = "FILE")]
    manager_log: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(arguments: SupportBundleArgs) -> Result<()> {
    let SupportBundleArgs { output_file, namespace, manager, manager_address, manager_log, connection } =
        arguments;
    let client = connection.client().await?;
    let version =
        client.apiserver_version().await.context("asking the management cluster for its version")?;
    let mut collector = Collector {
        client,
        namespace,
        archive: Archive::default(),
        missing: Vec::new(),
        withheld: Withheld::new()?,
        secrets: BTreeSet::new(),
    };
    let about = json!({
        "chandler": env!("CARGO_PKG_VERSION"), "kubernetes": version.git_version,
        "taken": Timestamp::now().to_string(), "namespace": collector.namespace,
    });
    collector.archive.json("about.json", &about)?;
    collector.objects().await?;
    collector.events().await?;
    collector.judgement(&manager).await?;
    if manager_address.is_none() && manager_log.is_none() {
        collector.pods(&manager.manager_namespace).await;
    }
    collector.process(manager_address, manager_log).await;
    collector.leases(&manager.manager_namespace).await?;
    collector.known_secrets().await;
    let Collector { mut archive, missing, withheld, .. } = collector;
    archive.text("missing.txt", &missing.join("\n"));
    archive.clean(&withheld);
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
    withheld: Withheld,
    /// Secrets that objects name.
    secrets: BTreeSet<(String, String)>,
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

    async fn list(&mut self, resource: &ApiResource) -> kube::Result<Vec<Value>> {
        let api: Api<DynamicObject> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let mut page = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let list = api.list(&page).await?;
            for object in list.items {
                self.withheld.name(&object.name_any());
                self.withheld.name(&object.namespace().unwrap_or_default());
                for name in NAMES.iter().filter_map(|pointer| object.data.pointer(pointer)?.as_str()) {
                    self.withheld.name(name);
                }
                let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                object["kind"] = resource.kind.clone().into();
                self.secrets.extend(secrets_of(&object));
                redact(&mut object, &mut |taken| self.withheld.value(taken));
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
                redact(&mut events, &mut |taken| self.withheld.value(taken));
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
        match Reader::new(self.client.clone(), self.namespace.clone()).fleet(&Progress::start()).await {
            Ok(fleet) => self.archive.json("fleet.json", &Listing::of(&fleet, &Filter::default()))?,
            Err(error) => self.missing.push(format!("fleet.json: {:#}", anyhow::Error::from(error))),
        }
        Ok(())
    }

    async fn leases(&mut self, namespace: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        match leases.list(&ListParams::default()).await {
            Ok(leases) => self.archive.json("leases.json", &leases.items)?,
            Err(error) => self.missing.push(format!("leases.json: {error}")),
        }
        Ok(())
    }

    /// Secrets are read for one purpose: to find what they hold in everything else, and take it out.
    async fn known_secrets(&mut self) {
        let mut refused = None;
        for (namespace, name) in std::mem::take(&mut self.secrets) {
            match Api::<Secret>::namespaced(self.client.clone(), &namespace).get_opt(&name).await {
                Ok(secret) => {
                    for bytes in
                        secret.and_then(|secret| secret.data).into_iter().flatten().map(|(_, bytes)| bytes.0)
                    {
                        self.withheld.text(&String::from_utf8_lossy(&bytes));
                        self.withheld.text(&BASE64_STANDARD.encode(&bytes));
                    }
                }
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            self.missing
                .push(format!("a search for the values of Secrets, some of which cannot be read: {error}"));
        }
    }

    /// Log and metrics of a manager that is not a Pod.
    async fn process(&mut self, address: Option<String>, log: Option<PathBuf>) {
        if let Some(path) = log {
            match std::fs::read(&path) {
                Ok(bytes) => self.archive.text("logs/manager.log", &end_of(&String::from_utf8_lossy(&bytes))),
                Err(error) => self.missing.push(format!("logs/manager.log: {}: {error}", path.display())),
            }
        }
        if let Some(address) = address {
            match timeout(METRICS_LIMIT, metrics_at(&address)).await {
                Ok(Ok(metrics)) => self.archive.text("metrics/manager.txt", &metrics),
                Ok(Err(error)) => self.missing.push(format!("metrics/manager.txt: {address}: {error:#}")),
                Err(_) => self.missing.push(format!("metrics/manager.txt: {address} does not answer")),
            }
        }
    }

    /// Logs and metrics of managers that are Pods.
    async fn pods(&mut self, namespace: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let names: Vec<String> = match pods.list_metadata(&ListParams::default()).await {
            Ok(list) => list.items.iter().map(kube::ResourceExt::name_any).collect(),
            Err(error) => {
                self.missing.push(format!("logs and metrics: {error}"));
                return;
            }
        };
        if names.is_empty() {
            self.missing.push(format!(
                "logs and metrics: no Pod runs in namespace {namespace}; name those of a manager elsewhere with \
                 --manager-address and --manager-log"
            ));
        }
        for name in names {
            self.pod(&pods, namespace, &name).await;
        }
    }

    async fn pod(&mut self, pods: &Api<Pod>, namespace: &str, name: &str) {
        let tail_lines = i64::try_from(LOG_LINES).ok();
        let parameters = LogParams { tail_lines, timestamps: true, ..LogParams::default() };
        match pods.logs(name, &parameters).await {
            Ok(log) => self.archive.text(&format!("logs/{name}.log"), &log),
            Err(error) => self.missing.push(format!("logs/{name}.log: {error}")),
        }
        // Most containers have no life before this one, and that is no loss.
        if let Ok(log) = pods.logs(name, &LogParams { previous: true, ..parameters }).await {
            self.archive.text(&format!("logs/{name}.previous.log"), &log);
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

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Just enough of HTTP for an endpoint of our own.
async fn metrics_at(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("connecting")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("asking")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.context("reading the answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "it answers {status}");
    Ok(body.to_owned())
}
