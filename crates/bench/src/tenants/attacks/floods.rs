//! Many releases that occupy slots and processes for a long time: on an API server that answers late, and with hooks that do not end.

use std::time::Duration;

use anyhow::Result;
use chandler_sandbox::{
    apply::apply,
    hostile::api_server::{Attack as Behavior, HostileServer},
};
use serde_json::{Value, json};

use super::charts;
use crate::{
    chart,
    environment::VERSIONS,
    tenants::{
        attack::{Attack, Site},
        objects::{self, CLUSTER_LABEL},
    },
    traffic::USER_AGENT,
};

/// Four operations may run on one cluster, and 16 on all clusters: these are three times as many.
const SLOW_CLUSTERS: usize = 12;
const SLOW_RELEASES: usize = 4;
const HOOKS: usize = 4;
const HOOK_CLUSTER: &str = "hooks";
/// The namespace on the attacker's cluster in which ConfigMaps are written late.
const SLOW_NAMESPACE: &str = "slow";
/// The longest timeout of webhooks.
const DELAY: Duration = Duration::from_secs(30);
/// Longer than the manager allows.
const TIMEOUT: &str = "3h";

pub async fn attack(site: &Site<'_>) -> Result<Attack> {
    let silent = HostileServer::start(&site.dir.join("silent-webhook"), Behavior::Silence).await?;
    let client = site.tenant.plane.client_as(USER_AGENT).await?;
    for object in [objects::namespace(SLOW_NAMESPACE), webhook(&silent)] {
        apply(&client, &object).await?;
    }
    let repository = charts::publish(site, "hook-charts").await?;
    let mut objects: Vec<_> = (0..SLOW_CLUSTERS).flat_map(|number| slow_releases(site, number)).collect();
    objects.extend((0..HOOKS).map(|number| hook(site, repository.url(), number)));
    let mut clusters: Vec<_> =
        (0..SLOW_CLUSTERS).map(|number| site.own_cluster(slow_cluster(number))).collect();
    clusters.push(site.own_cluster(HOOK_CLUSTER));
    Ok(Attack {
        clusters,
        objects,
        running: vec![Box::new(silent), Box::new(repository)],
        ..Attack::default()
    })
}

fn slow_cluster(number: usize) -> String {
    format!("slow-{number}")
}

fn slow_releases(site: &Site<'_>, number: usize) -> Vec<Value> {
    let cluster = slow_cluster(number);
    (0..SLOW_RELEASES)
        .map(|release| {
            let fields = json!({
                "repoURL": site.tenant.environment.repository().url(), "chartName": chart::NAME,
                "version": VERSIONS[0], "namespace": SLOW_NAMESPACE, "options": {"timeout": TIMEOUT},
            });
            site.chart_proxy(&format!("{cluster}-{release}"), (CLUSTER_LABEL, &cluster), &fields)
        })
        .collect()
}

/// Returns a placement of a chart with a hook. No Pods run on the cluster, so its Job never ends.
fn hook(site: &Site<'_>, repository: &str, number: usize) -> Value {
    let mut fields = charts::balloon(repository, "hook");
    fields["options"] = json!({"timeout": TIMEOUT});
    site.chart_proxy(&format!("hook-{number}"), (CLUSTER_LABEL, HOOK_CLUSTER), &fields)
}

/// Lets the API server of the attacker wait for a server that does not answer before it writes ConfigMaps in a namespace.
fn webhook(silent: &HostileServer) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": SLOW_NAMESPACE},
        "webhooks": [{
            "name": "slow.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": DELAY.as_secs(),
            "clientConfig": {
                "url": format!("https://127.0.0.1:{}/", silent.port()), "caBundle": silent.authority(),
            },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE", "UPDATE"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SLOW_NAMESPACE}},
        }],
    })
}
