//! Refuses to start beside the add-on provider for Helm, whose kinds Chandler serves: two controllers would fight over
//! every release.

use std::fmt::Debug;

use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    },
    coordination::v1::Lease,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{ManagementError, StartupError};

const GROUP: &str = "addons.cluster.x-k8s.io";
const RESOURCES: [&str; 2] = ["helmchartproxies", "helmreleaseproxies"];
const LEASE: &str = "controller-leader-election-caaph";
const NEXT: &str = "remove it first, for example with `clusterctl delete --addon helm`; \
                    HelmChartProxies and releases stay and are taken over as they are";

/// Fails, saying what to do, while pieces of the other provider are there.
pub async fn check(client: &Client) -> Result<(), StartupError> {
    match remains(client).await?.into_iter().next() {
        Some(found) => Err(StartupError::Predecessor { found, next: NEXT }),
        None => Ok(()),
    }
}

/// What there is of the other provider that would fight over releases, in words.
pub async fn remains(client: &Client) -> Result<Vec<String>, ManagementError> {
    Ok(leader(client).await?.into_iter().chain(webhooks(client).await?).collect())
}

async fn leader(client: &Client) -> Result<Option<String>, ManagementError> {
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let leases =
        Api::<Lease>::all(client.clone()).list(&named).await.map_err(|source| reading("Leases", source))?;
    let held = leases.into_iter().find(|lease| {
        lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_ref())
            .is_some_and(|holder| !holder.is_empty())
    });
    Ok(held.map(|lease| {
        let namespace = lease.namespace().unwrap_or_default();
        format!(
            "its leader Lease {namespace}/{LEASE} is held (a dead leader does not give it up: once nothing of the \
             provider runs, `kubectl delete lease {LEASE} --namespace {namespace}`)"
        )
    }))
}

async fn webhooks(client: &Client) -> Result<Vec<String>, ManagementError> {
    let mutating = registered(client, |webhooks: &MutatingWebhookConfiguration| {
        rules(webhooks.webhooks.iter().flatten().map(|webhook| &webhook.rules))
    });
    let validating = registered(client, |webhooks: &ValidatingWebhookConfiguration| {
        rules(webhooks.webhooks.iter().flatten().map(|webhook| &webhook.rules))
    });
    let found = mutating.await?.into_iter().chain(validating.await?);
    Ok(found.map(|name| format!("its webhook configuration {name} is registered")).collect())
}

/// The configurations of a kind whose rules concern us.
async fn registered<K>(client: &Client, concerns: impl Fn(&K) -> bool) -> Result<Vec<String>, ManagementError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    let all = all.map_err(|source| reading(&K::plural(&()), source))?;
    Ok(all.iter().filter(|configuration| concerns(configuration)).map(ResourceExt::name_any).collect())
}

fn rules<'a>(mut webhooks: impl Iterator<Item = &'a Option<Vec<RuleWithOperations>>>) -> bool {
    webhooks.any(|rules| rules.iter().flatten().any(concerns_us))
}

/// Cluster API's own core serves other kinds of the same group.
fn concerns_us(rule: &RuleWithOperations) -> bool {
    let names = |listed: &Option<Vec<String>>, ours: &[&str]| {
        listed.iter().flatten().any(|name| ours.contains(&name.as_str()))
    };
    names(&rule.api_groups, &[GROUP]) && names(&rule.resources, &RESOURCES)
}

fn reading(what: &str, source: kube::Error) -> ManagementError {
    ManagementError::Read { what: what.to_owned(), source }
}
