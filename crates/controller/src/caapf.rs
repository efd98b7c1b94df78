//! Detects CAAPF, the Cluster API add-on provider for Fleet. Chandler creates the same objects of Fleet, so both must not
//! run at the same time.

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{ManagementError, StartupError};

/// The label of the Deployment of CAAPF: the first value in its own manifests, the others set by clusterctl and the Cluster
/// API Operator.
const PROVIDER: &str = "cluster.x-k8s.io/provider in (fleet, addon-fleet, addon-rancher-fleet)";
const NEXT: &str = "remove it first, for example with `clusterctl delete --addon rancher-fleet`, or scale its Deployment to \
                    zero; clusters stay imported, and Chandler takes their objects over unchanged";

/// Returns an error that says what to do while CAAPF runs.
pub async fn check(client: &Client) -> Result<(), StartupError> {
    match running(client).await? {
        Some(found) => Err(StartupError::CaapfInstalled { found, next: NEXT }),
        None => Ok(()),
    }
}

/// Returns a description of the Deployment of CAAPF, or `None` if it does not run.
async fn running(client: &Client) -> Result<Option<String>, ManagementError> {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let found = deployments
        .list(&ListParams::default().labels(PROVIDER))
        .await
        .map_err(|source| ManagementError::Read { what: "Deployments".to_owned(), source })?;
    let running = found.iter().find(|deployment| has_replicas(deployment));
    Ok(running.map(|deployment| {
        let namespace = deployment.namespace().unwrap_or_default();
        format!("its Deployment {namespace}/{} has replicas", deployment.name_any())
    }))
}

/// A Deployment without `replicas` has one.
fn has_replicas(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1) > 0
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DeploymentSpec;

    use super::*;

    #[test]
    fn a_deployment_that_is_scaled_to_zero_does_not_run() {
        for (replicas, expected) in [(None, true), (Some(1), true), (Some(0), false)] {
            let spec = Some(DeploymentSpec { replicas, ..DeploymentSpec::default() });
            assert_eq!(has_replicas(&Deployment { spec, ..Deployment::default() }), expected);
        }
    }
}
