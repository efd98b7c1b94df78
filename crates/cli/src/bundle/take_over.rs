//! Creates the ExtensionInstance of a migration, waits until it has taken the objects over, and deletes the ClusterResourceSet.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use chandler_api::extensions::{ExtensionInstance, Source};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    plan::Plan,
    resource_set::{self, ResourceSet},
};

const FIELD_MANAGER: &str = "chandler";
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the Cluster API may take to complete the deletion of a ClusterResourceSet.
const DELETION_TIMEOUT: Duration = Duration::from_mins(1);

/// Takes the objects over. Every step can be repeated.
pub async fn run(client: &Client, set: &ResourceSet, plan: &Plan, limit: Duration) -> Result<()> {
    check_source(client, plan).await?;
    let instances: Api<ExtensionInstance> = Api::namespaced(client.clone(), &plan.namespace);
    apply_instance(&instances, plan).await?;
    println!("ExtensionInstance {}/{} takes the objects over", plan.namespace, plan.instance_name());
    let clusters = wait_ready(&instances, plan, limit).await?;
    println!("It is ready on {clusters} clusters");
    delete_set(client, set).await?;
    println!(
        "ClusterResourceSet {}/{} is deleted. Its ConfigMaps and Secrets are left; delete them when you do not need them",
        set.namespace, set.name
    );
    Ok(())
}

async fn check_source(client: &Client, plan: &Plan) -> Result<()> {
    let (namespace, name) = (&plan.namespace, &plan.source);
    let sources: Api<Source> = Api::namespaced(client.clone(), namespace);
    let found = sources.get_opt(name).await.with_context(|| format!("reading Source {namespace}/{name}"))?;
    let Some(source) = found else {
        bail!(
            "Source {namespace}/{name} does not exist: create it for the repository that contains {}",
            plan.path
        )
    };
    if source.status.and_then(|status| status.revision).is_none() {
        bail!(
            "Source {namespace}/{name} has no revision yet: see its conditions with `kubectl describe source {name}`"
        )
    }
    Ok(())
}

async fn apply_instance(instances: &Api<ExtensionInstance>, plan: &Plan) -> Result<()> {
    let name = plan.instance_name();
    let described = format!("ExtensionInstance {}/{name}", plan.namespace);
    let existing = instances.get_opt(name).await.with_context(|| format!("reading {described}"))?;
    if existing.is_some_and(|existing| !is_for(&existing, plan)) {
        bail!("{described} exists with another package: choose another name with --instance");
    }
    instances
        .patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(&plan.instance))
        .await
        .with_context(|| format!("applying {described}"))?;
    Ok(())
}

/// Returns whether an instance has the package of the migration.
fn is_for(instance: &ExtensionInstance, plan: &Plan) -> bool {
    instance.spec.source.as_ref().is_some_and(|source| {
        source.path.as_deref() == Some(&*plan.path)
            && source.source_ref.as_ref().is_some_and(|reference| reference.name == plan.source)
    })
}

/// Waits until the instance is ready on all clusters. Returns their number.
async fn wait_ready(instances: &Api<ExtensionInstance>, plan: &Plan, limit: Duration) -> Result<usize> {
    let name = plan.instance_name();
    let deadline = Instant::now() + limit;
    loop {
        let reading = || format!("reading ExtensionInstance {}/{name}", plan.namespace);
        let message = match readiness(&instances.get(name).await.with_context(reading)?) {
            Ok(clusters) => return Ok(clusters),
            Err(message) => message,
        };
        if Instant::now() >= deadline {
            bail!(
                "ExtensionInstance {}/{name} is not ready after {} s: {message}. The ClusterResourceSet was not deleted. See \
                 `chandler describe {name}`, then run the command again",
                plan.namespace,
                limit.as_secs()
            );
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the number of clusters if the instance is ready on all of them, otherwise what it waits for.
fn readiness(instance: &ExtensionInstance) -> Result<usize, String> {
    let current = instance
        .status
        .as_ref()
        .map(|status| &status.placement)
        .filter(|status| status.observed_generation == instance.metadata.generation);
    let Some(status) = current else { return Err("the manager has not reconciled it".to_owned()) };
    match status.conditions.iter().find(|condition| condition.type_ == "Ready") {
        Some(ready) if ready.status == "True" => Ok(status.matching_clusters.len()),
        Some(ready) => Err(format!("{}: {}", ready.reason, ready.message)),
        None => Err("it has no condition Ready".to_owned()),
    }
}

/// Deletes the ClusterResourceSet, but nothing that it owns, and waits until the Cluster API has completed the deletion.
async fn delete_set(client: &Client, set: &ResourceSet) -> Result<()> {
    let described = format!("ClusterResourceSet {}/{}", set.namespace, set.name);
    let sets = resource_set::api(client, &set.namespace, &set.version, "ClusterResourceSet");
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        preconditions: Some(Preconditions { uid: set.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    sets.delete(&set.name, &parameters).await.with_context(|| format!("deleting {described}"))?;
    let deleted = async {
        while sets.get_opt(&set.name).await?.is_some_and(|found| found.metadata.uid == set.uid) {
            sleep(POLL_INTERVAL).await;
        }
        Ok::<_, kube::Error>(())
    };
    match timeout(DELETION_TIMEOUT, deleted).await {
        Ok(result) => result.with_context(|| format!("reading {described}")),
        Err(_) => bail!(
            "the Cluster API has not completed the deletion of {described} within {} s: is its controller running?",
            DELETION_TIMEOUT.as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bundle::plan::tests::example;

    fn instance(status: &Value) -> ExtensionInstance {
        let mut object = example().instance;
        object["metadata"]["generation"] = json!(2);
        object["status"] = status.clone();
        serde_json::from_value(object).unwrap()
    }

    fn status(generation: u8, ready: &str) -> Value {
        json!({
            "observedGeneration": generation, "matchingClusters": [{"name": "alpha"}],
            "conditions": [{
                "type": "Ready", "status": ready, "reason": "NotReady", "message": "on alpha",
                "lastTransitionTime": "2025-01-01T00:00:00Z",
            }],
        })
    }

    #[test]
    fn an_instance_is_ready_at_its_generation() {
        assert_eq!(readiness(&instance(&status(2, "True"))), Ok(1));
        assert_eq!(readiness(&instance(&status(2, "False"))), Err("NotReady: on alpha".to_owned()));
        for outdated in [status(1, "True"), Value::Null] {
            assert!(readiness(&instance(&outdated)).unwrap_err().contains("not reconciled"));
        }
        assert!(readiness(&instance(&json!({"observedGeneration": 2}))).is_err());
    }

    #[test]
    fn an_instance_with_another_package_is_not_changed() {
        let plan = example();
        assert!(is_for(&instance(&Value::Null), &plan));
        assert!(!is_for(&instance(&Value::Null), &Plan { path: "other".to_owned(), ..plan.clone() }));
        assert!(!is_for(&instance(&Value::Null), &Plan { source: "other".to_owned(), ..plan }));
    }
}
