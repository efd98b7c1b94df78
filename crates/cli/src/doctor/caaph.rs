//! Whether pieces of the add-on provider for Helm are left.

use anyhow::{Context as _, Result};
use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use super::Finding;

const CHECK: &str = "caaph";
const LEASE: &str = "controller-leader-election-caaph";
const INJECTED: &str = "cert-manager.io/inject-ca-from";
const NEXT: &str =
    "follow the guide about moving from the add-on provider for Helm; HelmChartProxies and releases stay";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let mut remains = chandler_controller::caaph_resources(client).await?;
    let named = ListParams::default().fields("metadata.name=caaph-controller-manager");
    let deployments =
        Api::<Deployment>::all(client.clone()).list(&named).await.context("listing Deployments")?;
    remains.extend(deployments.iter().map(|deployment| {
        let namespace = deployment.namespace().unwrap_or_default();
        format!("its Deployment {namespace}/{} is there", deployment.name_any())
    }));
    let mut traces = leases(client).await?;
    traces.extend(definitions(client).await?);
    traces.extend(inventory(client).await);
    Ok(judge(remains, traces))
}

/// What is left, and does no harm yet: with what to do.
type Trace = (String, String);

/// Leases that nobody holds. One that is held is no trace: it keeps the manager from starting.
async fn leases(client: &Client) -> Result<Vec<Trace>> {
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let leases = Api::<Lease>::all(client.clone()).list(&named).await.context("listing Leases")?;
    Ok(leases.iter().filter(|lease| !is_held(lease)).map(trace_of_lease).collect())
}

fn is_held(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.is_some_and(|holder| !holder.is_empty())
}

fn trace_of_lease(lease: &Lease) -> Trace {
    let namespace = lease.namespace().unwrap_or_default();
    (
        format!("its Lease {namespace}/{LEASE} is there, held by nobody"),
        format!("`kubectl delete lease {LEASE} --namespace {namespace}`"),
    )
}

/// Definitions into which cert-manager still writes the authority of webhooks that are gone.
async fn definitions(client: &Client) -> Result<Vec<Trace>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut traces = Vec::new();
    for name in [HelmChartProxy::crd_name(), HelmReleaseProxy::crd_name()] {
        let there = definitions.get_metadata_opt(name).await.context("reading definitions")?;
        if there.is_some_and(|definition| definition.annotations().contains_key(INJECTED)) {
            traces.push((
                format!("the definition {name} still asks for a certificate of its webhooks"),
                format!("`kubectl annotate crd {name} {INJECTED}-`"),
            ));
        }
    }
    Ok(traces)
}

/// As clusterctl noted it. Who cannot ask learns nothing: not everybody uses clusterctl.
async fn inventory(client: &Client) -> Vec<Trace> {
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let providers: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let Ok(providers) = providers.list(&ListParams::default()).await else { return Vec::new() };
    providers.iter().filter(|provider| is_the_other(provider)).map(trace_of_provider).collect()
}

fn is_the_other(provider: &DynamicObject) -> bool {
    provider.data["type"] == "AddonProvider" && provider.data["providerName"] == "helm"
}

fn trace_of_provider(provider: &DynamicObject) -> Trace {
    let (namespace, name) = (provider.namespace().unwrap_or_default(), provider.name_any());
    (
        format!("clusterctl still lists it as Provider {namespace}/{name}, and would upgrade it"),
        "`clusterctl delete --addon helm`, without --include-crd: HelmChartProxies live and die with the definitions"
            .to_owned(),
    )
}

fn judge(remains: Vec<String>, traces: Vec<Trace>) -> Vec<Finding> {
    if remains.is_empty() && traces.is_empty() {
        return vec![Finding::ok(CHECK, "nothing is left of the add-on provider for Helm")];
    }
    let told = |found: String| format!("the add-on provider for Helm: {found}");
    let problems = remains.into_iter().map(|found| Finding::problem(CHECK, told(found), NEXT));
    let warnings = traces.into_iter().map(|(found, next)| Finding::warning(CHECK, told(found), next));
    problems.chain(warnings).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_lease_that_nobody_holds_is_a_trace() {
        let lease = |spec: serde_json::Value| -> Lease {
            serde_json::from_value(
                json!({"metadata": {"name": LEASE, "namespace": "caaph-system"}, "spec": spec}),
            )
            .unwrap()
        };
        assert!(is_held(&lease(json!({"holderIdentity": "someone"}))));
        let idle = lease(json!({"holderIdentity": ""}));
        assert!(!is_held(&idle));
        let found = judge(Vec::new(), vec![trace_of_lease(&idle)]);
        assert_eq!(found[0].verdict, Verdict::Warning);
        assert!(
            found[0].next.as_deref().unwrap_or_default().contains("--namespace caaph-system"),
            "{found:?}"
        );
    }

    #[test]
    fn only_the_other_provider_counts() {
        let provider = |kind: &str, name: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
                "metadata": {"name": "x", "namespace": "y"}, "type": kind, "providerName": name,
            }))
            .unwrap()
        };
        assert!(is_the_other(&provider("AddonProvider", "helm")));
        assert!(!is_the_other(&provider("AddonProvider", "chandler")));
        assert!(!is_the_other(&provider("InfrastructureProvider", "helm")));
    }
}
