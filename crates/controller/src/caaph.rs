//! Detects CAAPH, the Cluster API add-on provider for Helm. Chandler reconciles the same kinds, so both must not run at
//! the same time.

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
                    HelmChartProxies and releases stay, and Chandler adopts them unchanged";

/// Returns an error that says what to do while CAAPH is installed.
pub async fn check(client: &Client) -> Result<(), StartupError> {
    match conflicting_resources(client).await?.into_iter().next() {
        Some(found) => Err(StartupError::CaaphInstalled { found, next: NEXT }),
        None => Ok(()),
    }
}

/// Returns descriptions of the resources of CAAPH that conflict with Chandler.
pub async fn conflicting_resources(client: &Client) -> Result<Vec<String>, ManagementError> {
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
            "its leader Lease {namespace}/{LEASE} is held (a crashed leader does not release it: once CAAPH no longer \
             runs, `kubectl delete lease {LEASE} --namespace {namespace}`)"
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

/// Returns the names of the webhook configurations of a kind that `matches` accepts.
async fn registered<K>(client: &Client, matches: impl Fn(&K) -> bool) -> Result<Vec<String>, ManagementError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    let all = all.map_err(|source| reading(&K::plural(&()), source))?;
    Ok(all.iter().filter(|configuration| matches(configuration)).map(ResourceExt::name_any).collect())
}

fn rules<'a>(mut webhooks: impl Iterator<Item = &'a Option<Vec<RuleWithOperations>>>) -> bool {
    webhooks.any(|rules| rules.iter().flatten().any(is_for_helm_proxies))
}

/// Returns whether a rule is for HelmChartProxies or HelmReleaseProxies. Other kinds of the group belong to Cluster
/// API.
fn is_for_helm_proxies(rule: &RuleWithOperations) -> bool {
    let names = |listed: &Option<Vec<String>>, expected: &[&str]| {
        listed.iter().flatten().any(|name| expected.contains(&name.as_str()))
    };
    names(&rule.api_groups, &[GROUP]) && names(&rule.resources, &RESOURCES)
}

fn reading(what: &str, source: kube::Error) -> ManagementError {
    ManagementError::Read { what: what.to_owned(), source }
}
