//! The placement or release that `chandler suspend`, `resume`, `retry`, `history`, `rollback` and `rollout` are about.

use anyhow::{Context as _, Result, bail};
use chandler_view::{
    description::{FoundResource, ResourceArgument},
    fleet::{Fleet, FleetReader, ObjectName, Placement, find_kinds},
    suspend_and_retry::{AnnotatedObjects, Change},
};
use clap::Args;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde::Serialize;

use crate::{connection::Connection, output::StructuredFormat, progress::Progress};

#[derive(Debug, Args)]
pub struct ObjectArgs {
    /// A placement or a release object: `hcp/NAME` for a HelmChartProxy, `exti/NAME` for an ExtensionInstance,
    /// `release/NAME`, `hrp/NAME` or `ar/NAME` for a release object
    // A subcommand replaces it, so it is optional here.
    #[arg(required = true, value_name = "[KIND/]NAME")]
    name: Option<String>,
    /// Only the release of the placement on this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace of the object [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

impl ObjectArgs {
    /// Reads the placements and releases of the namespace.
    pub async fn read(self) -> Result<Selection> {
        let Self { name, cluster, namespace, connection, output } = self;
        let argument = ResourceArgument::parse(&name.unwrap_or_default())?;
        let client = connection.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let reader = FleetReader::new(client.clone(), Some(namespace.clone()));
        let fleet = reader.read(&Progress::start()).await?;
        Ok(Selection { client, namespace, fleet, argument, cluster, output })
    }
}

#[derive(Clone, Debug, Args)]
pub struct PlacementArgs {
    /// A placement: `hcp/NAME` for a HelmChartProxy, `exti/NAME` for an ExtensionInstance
    #[arg(value_name = "[KIND/]NAME")]
    name: String,
    /// Namespace of the placement [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

impl PlacementArgs {
    /// Reads the placements and releases of the namespace.
    pub async fn read(self) -> Result<Selection> {
        let Self { name, namespace, connection, output } = self;
        ObjectArgs { name: Some(name), cluster: None, namespace, connection, output }.read().await
    }
}

/// The objects of a namespace, and the one of them that the user has named.
pub struct Selection {
    pub client: Client,
    namespace: String,
    pub fleet: Fleet,
    argument: ResourceArgument,
    cluster: Option<String>,
    output: Option<StructuredFormat>,
}

/// An object as structured output shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectOutput<'a> {
    #[serde(flatten)]
    object: &'a ObjectName,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    /// Whether this command has changed it.
    changed: bool,
}

impl Selection {
    /// Returns the objects that the user has selected.
    pub fn objects(&self) -> Result<AnnotatedObjects<'_>> {
        let found = self.argument.find(&self.fleet, &self.namespace)?;
        Ok(AnnotatedObjects::new(&found, &self.fleet, self.cluster.as_deref())?)
    }

    /// Returns the placement that the user has named.
    pub fn placement(&self) -> Result<&Placement> {
        match self.argument.find(&self.fleet, &self.namespace)? {
            FoundResource::Placement(placement) => Ok(placement),
            FoundResource::Release(release) => {
                bail!("{} is a release: name its placement instead", release.object)
            }
        }
    }

    /// Returns the arguments with which another command selects the same object.
    pub fn arguments(&self, objects: &AnnotatedObjects<'_>) -> String {
        let name = match objects {
            AnnotatedObjects::Placement(placement) => placement.object.argument(),
            AnnotatedObjects::Releases(releases) => {
                releases.first().map(|release| release.object.argument()).unwrap_or_default()
            }
        };
        format!("{name} --namespace {}", self.namespace)
    }

    /// Patches the metadata of the objects.
    pub async fn write(&self, changes: &[Change]) -> Result<()> {
        for Change { object, patch, .. } in changes {
            let Some(patch) = patch else { continue };
            let kinds = find_kinds(&object.kind);
            let kind = kinds.first().with_context(|| format!("{} is of an unknown kind", object.kind))?;
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &object.namespace, &kind.resource());
            api.patch(&object.name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("writing the annotation of {object}"))?;
        }
        Ok(())
    }

    /// Prints the objects in the structured format that the user has chosen, or as text.
    pub fn print(&self, changes: &[Change], text: impl FnOnce() -> String) -> Result<()> {
        self.print_value(&changes.iter().map(ObjectOutput::new).collect::<Vec<_>>(), text)
    }

    /// Prints a value in the structured format that the user has chosen, or the text.
    pub fn print_value(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let text = match self.output {
            Some(format) => format.text(value)?,
            None => text(),
        };
        print!("{text}");
        Ok(())
    }
}

impl<'a> ObjectOutput<'a> {
    fn new(change: &'a Change) -> Self {
        let Change { object, cluster, patch } = change;
        Self { object, cluster: cluster.as_deref(), changed: patch.is_some() }
    }
}

/// Returns the name of a changed object for users, such as `HelmReleaseProxy fleet/hello-alpha on cluster alpha`.
pub fn name(change: &Change) -> String {
    match &change.cluster {
        Some(cluster) => format!("{} on cluster {cluster}", change.object),
        None => change.object.to_string(),
    }
}
