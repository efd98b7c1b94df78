//! Checks for remains of the Cluster API Add-on Provider for Helm (CAAPH), which must not run beside Chandler.

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
const CA_INJECTION_ANNOTATION: &str = "cert-manager.io/inject-ca-from";
const NEXT_STEP: &str =
    "follow the guide to migrate from CAAPH; HelmChartProxies and releases are left unchanged";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let mut conflicts = chandler_controller::caaph_resources(client).await?;
    let params = ListParams::default().fields("metadata.name=caaph-controller-manager");
    let deployments =
        Api::<Deployment>::all(client.clone()).list(&params).await.context("listing Deployments")?;
    conflicts.extend(deployments.iter().map(|deployment| {
        let namespace = deployment.namespace().unwrap_or_default();
        format!("its Deployment {namespace}/{} exists", deployment.name_any())
    }));
    let mut leftovers = leases(client).await?;
    leftovers.extend(crds(client).await?);
    leftovers.extend(providers(client).await);
    Ok(evaluate(conflicts, leftovers))
}

/// A message about something that CAAPH left behind and that does not conflict with Chandler, and what to do about it.
type Leftover = (String, String);

/// Returns the leader election Leases without a holder. A Lease with a holder is a conflict: it prevents the manager
/// from starting.
async fn leases(client: &Client) -> Result<Vec<Leftover>> {
    let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let leases = Api::<Lease>::all(client.clone()).list(&params).await.context("listing Leases")?;
    Ok(leases.iter().filter(|lease| !is_held(lease)).map(leftover_lease).collect())
}

fn is_held(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.is_some_and(|holder| !holder.is_empty())
}

fn leftover_lease(lease: &Lease) -> Leftover {
    let namespace = lease.namespace().unwrap_or_default();
    (
        format!("its Lease {namespace}/{LEASE} exists without a holder"),
        format!("`kubectl delete lease {LEASE} --namespace {namespace}`"),
    )
}

/// Returns the CRDs into which cert-manager still injects the CA of CAAPH's webhooks.
async fn crds(client: &Client) -> Result<Vec<Leftover>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut leftovers = Vec::new();
    for name in [HelmChartProxy::crd_name(), HelmReleaseProxy::crd_name()] {
        let crd = crds.get_metadata_opt(name).await.context("reading CRDs")?;
        if crd.is_some_and(|crd| crd.annotations().contains_key(CA_INJECTION_ANNOTATION)) {
            leftovers.push((
                format!("the CRD {name} still has the annotation {CA_INJECTION_ANNOTATION}"),
                format!("`kubectl annotate crd {name} {CA_INJECTION_ANNOTATION}-`"),
            ));
        }
    }
    Ok(leftovers)
}

/// Returns the entries in clusterctl's inventory. Ignores errors, because clusterctl may not be in use.
async fn providers(client: &Client) -> Vec<Leftover> {
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let providers: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let Ok(providers) = providers.list(&ListParams::default()).await else { return Vec::new() };
    providers.iter().filter(|provider| is_caaph(provider)).map(leftover_provider).collect()
}

fn is_caaph(provider: &DynamicObject) -> bool {
    provider.data["type"] == "AddonProvider" && provider.data["providerName"] == "helm"
}

fn leftover_provider(provider: &DynamicObject) -> Leftover {
    let (namespace, name) = (provider.namespace().unwrap_or_default(), provider.name_any());
    (
        format!("clusterctl still lists it as Provider {namespace}/{name} and would upgrade it"),
        "`clusterctl delete --addon helm`, without --include-crd: deleting the CRDs deletes all HelmChartProxies"
            .to_owned(),
    )
}

fn evaluate(conflicts: Vec<String>, leftovers: Vec<Leftover>) -> Vec<Finding> {
    if conflicts.is_empty() && leftovers.is_empty() {
        return vec![Finding::ok(CHECK, "CAAPH is not installed")];
    }
    let message = |found: String| format!("the add-on provider for Helm: {found}");
    let problems = conflicts.into_iter().map(|found| Finding::problem(CHECK, message(found), NEXT_STEP));
    let warnings =
        leftovers.into_iter().map(|(found, next_step)| Finding::warning(CHECK, message(found), next_step));
    problems.chain(warnings).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_lease_without_a_holder_is_a_warning() {
        let lease = |spec: serde_json::Value| -> Lease {
            serde_json::from_value(
                json!({"metadata": {"name": LEASE, "namespace": "caaph-system"}, "spec": spec}),
            )
            .unwrap()
        };
        assert!(is_held(&lease(json!({"holderIdentity": "caaph"}))));
        let unheld = lease(json!({"holderIdentity": ""}));
        assert!(!is_held(&unheld));
        let found = evaluate(Vec::new(), vec![leftover_lease(&unheld)]);
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(
            found[0].next_step.as_deref().unwrap_or_default().contains("--namespace caaph-system"),
            "{found:?}"
        );
    }

    #[test]
    fn only_caaph_matches() {
        let provider = |kind: &str, name: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
                "metadata": {"name": "x", "namespace": "y"}, "type": kind, "providerName": name,
            }))
            .unwrap()
        };
        assert!(is_caaph(&provider("AddonProvider", "helm")));
        assert!(!is_caaph(&provider("AddonProvider", "chandler")));
        assert!(!is_caaph(&provider("InfrastructureProvider", "helm")));
    }
}
