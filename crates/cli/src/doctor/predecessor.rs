//! Whether pieces of the add-on provider for Helm are left.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::Finding;

const CHECK: &str = "predecessor";
const NEXT: &str =
    "follow the guide about moving from the add-on provider for Helm; HelmChartProxies and releases stay";

pub async fn check(client: &Client) -> Result<Vec<Finding>> {
    let mut remains = chandler_controller::predecessor_remains(client).await?;
    let named = ListParams::default().fields("metadata.name=caaph-controller-manager");
    let deployments =
        Api::<Deployment>::all(client.clone()).list(&named).await.context("listing Deployments")?;
    remains.extend(deployments.iter().map(|deployment| {
        let namespace = deployment.namespace().unwrap_or_default();
        format!("its Deployment {namespace}/{} is there", deployment.name_any())
    }));
    Ok(judge(remains))
}

fn judge(remains: Vec<String>) -> Vec<Finding> {
    if remains.is_empty() {
        return vec![Finding::ok(CHECK, "nothing is left of the add-on provider for Helm")];
    }
    let problem = |found| Finding::problem(CHECK, format!("the add-on provider for Helm: {found}"), NEXT);
    remains.into_iter().map(problem).collect()
}
