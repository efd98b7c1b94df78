//! The add-ons that a tenant installs, and how long each takes until it is Ready.

use std::time::Duration;

use anyhow::Result;
use chandler_sandbox::{apply::apply, dynamic_api};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    objects::{self, CLUSTER_LABEL},
    tenant::MAIN_CLUSTER,
};
use crate::{chart, numbers::seconds, releases::Releases};

/// An add-on that is not Ready by then counts as late.
pub const DEADLINE: Duration = Duration::from_secs(40);
/// How long the removal of an add-on is waited for.
const REMOVAL: Duration = Duration::from_secs(10);

/// The kind of the placement of an add-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AddonKind {
    HelmChartProxy,
    ExtensionInstance,
}

/// An add-on: the objects that install it on the Cluster of the tenant.
#[derive(Clone, Debug)]
pub struct Addon {
    name: String,
    pub kind: AddonKind,
    objects: Vec<Value>,
}

/// How long an add-on took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    pub kind: AddonKind,
    pub seconds: f64,
    /// Whether it was not Ready within [`DEADLINE`].
    pub is_late: bool,
}

/// Add-ons that are installed at the same time, from a repository of their own.
#[derive(Clone, Debug)]
pub struct Round {
    pub number: u32,
    pub version: String,
    pub repository: String,
}

impl Round {
    /// Returns the name of the catalog of the repository.
    pub fn catalog(&self) -> String {
        format!("round-{}", self.number)
    }

    /// Returns so many add-ons, of both kinds in turn.
    pub fn addons(&self, namespace: &str, count: u32) -> Vec<Addon> {
        let addon = |index: u32| {
            let name = format!("addon-{}-{index}", self.number);
            if index.is_multiple_of(2) {
                self.chart_proxy(namespace, name)
            } else {
                self.instance(namespace, name)
            }
        };
        (0..count).map(addon).collect()
    }

    fn chart_proxy(&self, namespace: &str, name: String) -> Addon {
        let fields = json!({
            "repoURL": self.repository, "chartName": chart::NAME, "version": self.version,
            "valuesTemplate": "cluster: {{ .Cluster.metadata.name }}\n",
        });
        let objects = vec![objects::chart_proxy(namespace, &name, (CLUSTER_LABEL, MAIN_CLUSTER), &fields)];
        Addon { name, kind: AddonKind::HelmChartProxy, objects }
    }

    /// The instance is one of an Extension, so that versions are resolved.
    fn instance(&self, namespace: &str, name: String) -> Addon {
        let source = json!({"catalog": {"name": self.catalog()}, "chart": chart::NAME});
        let fields = json!({
            "extension": {"name": name},
            "parametersTemplate": "cluster: {{ .Cluster.metadata.name }}\n",
        });
        let objects = vec![
            objects::extension(namespace, &name, &self.version, &source),
            objects::instance(namespace, &name, MAIN_CLUSTER, &fields),
        ];
        Addon { name, kind: AddonKind::ExtensionInstance, objects }
    }
}

/// Installs an add-on, and waits until it is Ready or late.
pub async fn install(client: &Client, addon: &Addon, releases: &Releases) -> Result<Sample> {
    let started = Instant::now();
    for object in &addon.objects {
        apply(client, object).await?;
    }
    let key = (addon.name.clone(), MAIN_CLUSTER.to_owned());
    let ready = releases.wait_for(DEADLINE, |snapshot| snapshot.is_ready(&key)).await;
    Ok(Sample { kind: addon.kind, seconds: seconds(started.elapsed()), is_late: ready.is_err() })
}

/// Deletes the placement of an add-on, and what it refers to once the release is removed. If that takes too long, it goes on meanwhile.
pub async fn remove(client: &Client, addon: &Addon, releases: &Releases) -> Result<()> {
    for object in addon.objects.iter().rev() {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let resource = dynamic_api::resource(text("/apiVersion"), text("/kind"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), text("/metadata/namespace"), &resource);
        api.delete(text("/metadata/name"), &DeleteParams::default()).await?;
        let _ = releases.wait_for(REMOVAL, |snapshot| !snapshot.contains(&addon.name)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_add_ons_are_of_each_kind_and_all_are_new() {
        let round = Round { number: 3, version: "1.0.3".to_owned(), repository: "https://charts".to_owned() };
        let addons = round.addons("blue", 4);
        let kinds: Vec<_> = addons.iter().map(|addon| addon.kind).collect();
        let expected = [AddonKind::HelmChartProxy, AddonKind::ExtensionInstance].repeat(2);
        assert_eq!(kinds, expected);
        for addon in &addons {
            assert!(addon.name.starts_with("addon-3-"), "{}", addon.name);
            let placement = addon.objects.last().unwrap();
            assert_eq!(placement["metadata"]["name"], json!(addon.name));
            assert_eq!(placement["metadata"]["namespace"], "blue");
        }
    }
}
