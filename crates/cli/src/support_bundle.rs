//! `chandler support-bundle`: collects diagnostics without secrets.

mod archive;
mod redact;
mod scrubber;

use std::{collections::BTreeSet, path::PathBuf, pin::pin, time::Duration};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION};
use chandler_view::{
    fleet::FleetReader,
    listing::{Filter, Listing},
    paging::pages,
};
use clap::Args;
use futures::TryStreamExt as _;
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
    redact::{redact, referenced_secrets},
    scrubber::SecretScrubber,
};
use crate::{
    connection::Connection,
    doctor::{self, ManagerIdentity},
    progress::Progress,
};

/// Fields with names, which are not removed.
const NAME_FIELDS: [&str; 4] = ["/spec/chartName", "/spec/releaseName", "/spec/namespace", "/spec/cluster"];
/// Port of the metrics of managers that run as Pods.
const METRICS_PORT: u16 = 8080;
/// Maximum number of lines of a log. Older lines are left out.
const LOG_LINES: usize = 20_000;
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// Collect diagnostics in an archive, without secrets
///
/// The archive contains the objects of Chandler's kinds, Clusters, Events, the leader election Lease, the output of
/// `get` and `doctor`, and the log and metrics of the manager if they are accessible. Values, templates, parameters,
/// topology variables and third-party annotations are redacted. Their contents, the contents of referenced Secrets, and
/// everything that looks like a password, token or key are removed from all files. Secrets are never included.
#[derive(Debug, Args)]
pub struct SupportBundleArgs {
    /// Path of the archive [default: chandler-support.tar.gz]
    #[arg(long, value_name = "FILE", default_value = "chandler-support.tar.gz", hide_default_value = true)]
    output_file: PathBuf,
    /// Include only objects in this namespace [default: all]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    manager: ManagerIdentity,
    /// Metrics address of a manager that does not run as a Pod, such as 127.0.0.1:8080
    #[arg(long, value_name = "HOST:PORT")]
    manager_address: Option<String>,
    /// Log file of a manager that does not run as a Pod
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
        client.apiserver_version().await.context("reading the version of the management cluster")?;
    let mut collector = Collector {
        client,
        namespace,
        archive: Archive::default(),
        missing: Vec::new(),
        scrubber: SecretScrubber::new()?,
        secrets: BTreeSet::new(),
    };
    let metadata = json!({
        "chandler": env!("CARGO_PKG_VERSION"), "kubernetes": version.git_version,
        "collectedAt": Timestamp::now().to_string(), "namespace": collector.namespace,
    });
    collector.archive.add_json("about.json", &metadata)?;
    collector.objects().await?;
    collector.events().await?;
    collector.command_outputs(&manager).await?;
    if manager_address.is_none() && manager_log.is_none() {
        collector.pods(&manager.manager_namespace).await;
    }
    collector.local_manager(manager_address, manager_log).await;
    collector.leases(&manager.manager_namespace).await?;
    collector.read_secrets().await;
    let Collector { mut archive, missing, scrubber, .. } = collector;
    archive.add_text("missing.txt", &missing.join("\n"));
    archive.scrub(&scrubber);
    archive.write(&output_file)?;
    println!("wrote {} ({} files)", output_file.display(), archive.len());
    for message in missing {
        eprintln!("not included: {message}");
    }
    println!(
        "Review it before you share it: it contains the names of clusters, namespaces, charts and repositories."
    );
    Ok(())
}

struct Collector {
    client: Client,
    namespace: Option<String>,
    archive: Archive,
    /// Files that could not be collected, with the reason.
    missing: Vec<String>,
    scrubber: SecretScrubber,
    /// Namespace and name of the Secrets that objects reference.
    secrets: BTreeSet<(String, String)>,
}

impl Collector {
    /// Adds the objects of Chandler's kinds, and Clusters.
    async fn objects(&mut self) -> Result<()> {
        let chandler = chandler_api::crds().into_iter().filter_map(|crd| {
            let names = crd.spec.names;
            let kind = GroupVersionKind::gvk(&crd.spec.group, &crd.spec.versions.first()?.name, &names.kind);
            Some(ApiResource::from_gvk_with_plural(&kind, &names.plural))
        });
        let clusters = GroupVersionKind::gvk(CLUSTER_GROUP, CLUSTER_VERSION, "Cluster");
        let resources: Vec<_> =
            chandler.chain([ApiResource::from_gvk_with_plural(&clusters, "clusters")]).collect();
        for resource in resources {
            let name = format!("objects/{}.{}.json", resource.plural, resource.group);
            match self.list(&resource).await {
                Ok(objects) => self.archive.add_json(&name, &objects)?,
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
        let mut pages = pin!(pages(api, ListParams::default()));
        let mut all = Vec::new();
        while let Some(objects) = pages.try_next().await? {
            for object in objects {
                self.scrubber.add_name(&object.name_any());
                self.scrubber.add_name(&object.namespace().unwrap_or_default());
                for name in NAME_FIELDS.iter().filter_map(|pointer| object.data.pointer(pointer)?.as_str()) {
                    self.scrubber.add_name(name);
                }
                let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                object["kind"] = resource.kind.clone().into();
                self.secrets.extend(referenced_secrets(&object));
                redact(&mut object, &mut |value| self.scrubber.add_value(value));
                all.push(object);
            }
        }
        Ok(all)
    }

    /// Adds the Events of Chandler's kinds and Clusters.
    async fn events(&mut self) -> Result<()> {
        let kinds: BTreeSet<String> =
            chandler_api::crds().into_iter().map(|crd| crd.spec.names.kind).collect();
        let api: Api<Event> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let is_relevant = |event: &Event| {
            let kind = event.regarding.as_ref().and_then(|object| object.kind.as_deref()).unwrap_or_default();
            kinds.contains(kind) || kind == "Cluster"
        };
        match api.list(&ListParams::default()).await {
            Ok(events) => {
                let mut events =
                    serde_json::to_value(events.items.into_iter().filter(is_relevant).collect::<Vec<_>>())?;
                redact(&mut events, &mut |value| self.scrubber.add_value(value));
                self.archive.add_json("events.json", &events)
            }
            Err(error) => {
                self.missing.push(format!("events.json: {error}"));
                Ok(())
            }
        }
    }

    /// Adds the output of `doctor` and `get`.
    async fn command_outputs(&mut self, manager: &ManagerIdentity) -> Result<()> {
        match doctor::run_checks(&self.client, self.namespace.clone(), manager).await {
            Ok(report) => self.archive.add_json("doctor.json", &report)?,
            Err(error) => self.missing.push(format!("doctor.json: {error:#}")),
        }
        match FleetReader::new(self.client.clone(), self.namespace.clone()).read(&Progress::start()).await {
            Ok(fleet) => self.archive.add_json("fleet.json", &Listing::new(&fleet, &Filter::default()))?,
            Err(error) => self.missing.push(format!("fleet.json: {:#}", anyhow::Error::from(error))),
        }
        Ok(())
    }

    /// Adds the Leases in the namespace of the manager.
    async fn leases(&mut self, namespace: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        match leases.list(&ListParams::default()).await {
            Ok(leases) => self.archive.add_json("leases.json", &leases.items)?,
            Err(error) => self.missing.push(format!("leases.json: {error}")),
        }
        Ok(())
    }

    /// Reads the referenced Secrets, only to remove their contents from all files.
    async fn read_secrets(&mut self) {
        let mut last_error = None;
        for (namespace, name) in std::mem::take(&mut self.secrets) {
            match Api::<Secret>::namespaced(self.client.clone(), &namespace).get_opt(&name).await {
                Ok(secret) => {
                    for bytes in
                        secret.and_then(|secret| secret.data).into_iter().flatten().map(|(_, bytes)| bytes.0)
                    {
                        self.scrubber.add_text(&String::from_utf8_lossy(&bytes));
                        self.scrubber.add_text(&BASE64_STANDARD.encode(&bytes));
                    }
                }
                Err(error) => last_error = Some(error),
            }
        }
        if let Some(error) = last_error {
            self.missing.push(format!(
                "the contents of some Secrets are not removed from the files, because they cannot be read: {error}"
            ));
        }
    }

    /// Adds the log and metrics of a manager that does not run as a Pod.
    async fn local_manager(&mut self, address: Option<String>, log: Option<PathBuf>) {
        if let Some(path) = log {
            match std::fs::read(&path) {
                Ok(bytes) => {
                    self.archive.add_text("logs/manager.log", &last_lines(&String::from_utf8_lossy(&bytes)));
                }
                Err(error) => self.missing.push(format!("logs/manager.log: {}: {error}", path.display())),
            }
        }
        if let Some(address) = address {
            match timeout(METRICS_TIMEOUT, metrics_at(&address)).await {
                Ok(Ok(metrics)) => self.archive.add_text("metrics/manager.txt", &metrics),
                Ok(Err(error)) => self.missing.push(format!("metrics/manager.txt: {address}: {error:#}")),
                Err(_) => self.missing.push(format!("metrics/manager.txt: {address} does not respond")),
            }
        }
    }

    /// Adds the logs and metrics of managers that run as Pods.
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
                "logs and metrics: no Pod found in namespace {namespace}; for a manager that does not run as a Pod, set \
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
            Ok(log) => self.archive.add_text(&format!("logs/{name}.log"), &log),
            Err(error) => self.missing.push(format!("logs/{name}.log: {error}")),
        }
        // Most containers have not been restarted and have no previous log.
        if let Ok(log) = pods.logs(name, &LogParams { previous: true, ..parameters }).await {
            self.archive.add_text(&format!("logs/{name}.previous.log"), &log);
        }
        match self.metrics(namespace, name).await {
            Ok(metrics) => self.archive.add_text(&format!("metrics/{name}.txt"), &metrics),
            Err(error) => self.missing.push(format!("metrics/{name}.txt: {error:#}")),
        }
    }

    /// Reads the metrics of a Pod through the API server. Fails if the manager listens only on loopback.
    async fn metrics(&self, namespace: &str, pod: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics");
        Ok(self.client.request_text(http::Request::get(path).body(Vec::new())?).await?)
    }
}

/// Returns the last lines of a log.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// Reads metrics with a minimal HTTP request, which is enough for Chandler's own endpoint.
async fn metrics_at(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.context("connecting")?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("sending the request")?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.context("reading the response")?;
    let (head, body) = response.split_once("\r\n\r\n").context("the response is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the response is {status}");
    Ok(body.to_owned())
}
