//! Refuses to start beside the add-on provider for Helm, whose kinds Chandler serves: two controllers would fight over
//! every release.

use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
    },
    coordination::v1::Lease,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::Error;

const GROUP: &str = "addons.cluster.x-k8s.io";
const RESOURCES: [&str; 2] = ["helmchartproxies", "helmreleaseproxies"];
const LEASE: &str = "controller-leader-election-caaph";
const NEXT: &str = "remove it first, for example with `clusterctl delete --addon helm`; \
                    HelmChartProxies and releases stay and are taken over as they are";

/// Fails, saying what to do, while pieces of the other provider are there.
pub async fn check(client: &Client) -> Result<(), Error> {
    if let Some(found) = leader(client).await?.or(webhooks(client).await?) {
        return Err(Error::Predecessor { found, next: NEXT });
    }
    Ok(())
}

async fn leader(client: &Client) -> Result<Option<String>, Error> {
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
    Ok(held
        .map(|lease| format!("its leader Lease {}/{LEASE} is held", lease.namespace().unwrap_or_default())))
}

async fn webhooks(client: &Client) -> Result<Option<String>, Error> {
    let all = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone())
        .list(&all)
        .await
        .map_err(|source| reading("MutatingWebhookConfigurations", source))?;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone())
        .list(&all)
        .await
        .map_err(|source| reading("ValidatingWebhookConfigurations", source))?;
    let mutating = mutating.into_iter().map(|configuration| {
        let rules =
            configuration.webhooks.iter().flatten().flat_map(|webhook| webhook.rules.iter().flatten());
        (configuration.name_any(), rules.clone().any(concerns_us))
    });
    let validating = validating.into_iter().map(|configuration| {
        let rules =
            configuration.webhooks.iter().flatten().flat_map(|webhook| webhook.rules.iter().flatten());
        (configuration.name_any(), rules.clone().any(concerns_us))
    });
    let found = mutating.chain(validating).find(|(_, concerns_us)| *concerns_us);
    Ok(found.map(|(name, _)| format!("its webhook configuration {name} is registered")))
}

/// Cluster API's own core serves other kinds of the same group.
fn concerns_us(rule: &RuleWithOperations) -> bool {
    let names = |listed: &Option<Vec<String>>, ours: &[&str]| {
        listed.iter().flatten().any(|name| ours.contains(&name.as_str()))
    };
    names(&rule.api_groups, &[GROUP]) && names(&rule.resources, &RESOURCES)
}

fn reading(what: &str, source: kube::Error) -> Error {
    Error::Read { what: what.to_owned(), source }
}
