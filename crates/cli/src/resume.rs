//! `chandler resume`: lets a suspended object continue.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use chandler_api::extensions::{RESUMED_ANNOTATION, SyncObject};
use chandler_view::suspend_and_retry::Change;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    object_argument::{ObjectArgs, name},
};

/// Resume a suspended placement, its release on one cluster, or a Sync
///
/// Chandler makes the changes that have waited. The annotation `chandler.dev/suspend` is removed. What an AddonPolicy with
/// `suspend: true` suspends stays suspended.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ResumeArgs {
    #[command(subcommand)]
    command: Option<ResumeCommand>,
    #[command(flatten)]
    object: ObjectArgs,
}

#[derive(Debug, Subcommand)]
pub enum ResumeCommand {
    /// Resume a Sync that a user has suspended, or that has suspended itself because its objects are moved
    ///
    /// A Sync that has suspended itself creates the objects of its folder again, also those that `clusterctl move` has
    /// moved to another management cluster.
    Sync(ResumeSyncArgs),
}

#[derive(Debug, Args)]
pub struct ResumeSyncArgs {
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the Sync [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    /// Name of the Sync
    name: String,
}

pub async fn run(arguments: ResumeArgs) -> Result<()> {
    let ResumeArgs { command, object } = arguments;
    match command {
        Some(ResumeCommand::Sync(arguments)) => resume_sync(arguments).await,
        None => resume_object(object).await,
    }
}

async fn resume_object(object: ObjectArgs) -> Result<()> {
    let selection = object.read().await?;
    let objects = selection.objects()?;
    let changes = objects.resume();
    selection.write(&changes).await?;
    let (clusters, policy) = (objects.suspended_clusters(&selection.fleet), objects.policy(&selection.fleet));
    selection.print(&changes, || text(&changes, &clusters, policy.as_deref()))
}

/// Returns what was resumed, and what may still be suspended: releases on these clusters, and what a policy suspends.
fn text(changes: &[Change], clusters: &[String], policy: Option<&str>) -> String {
    let mut text = String::new();
    for change in changes {
        let name = name(change);
        let _ = match change.patch {
            Some(_) => writeln!(text, "{name} is resumed."),
            None => writeln!(text, "{name} is not suspended by an annotation."),
        };
    }
    for cluster in clusters {
        let _ =
            writeln!(text, "Its release on cluster {cluster} is still suspended: add --cluster {cluster}.");
    }
    if let Some(policy) = policy {
        let _ = writeln!(text, "It stays suspended as long as AddonPolicy {policy} has `suspend: true`.");
    }
    text
}

async fn resume_sync(arguments: ResumeSyncArgs) -> Result<()> {
    let ResumeSyncArgs { connection, namespace, name } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let syncs: Api<SyncObject> = Api::namespaced(client, &namespace);
    let found = syncs.get_opt(&name).await.with_context(|| format!("reading Sync {namespace}/{name}"))?;
    let Some(sync) = found else { bail!("Sync {namespace}/{name} does not exist") };
    let Some(patch) = patch(&sync) else {
        println!("Sync {namespace}/{name} is not suspended.");
        return Ok(());
    };
    syncs
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("resuming Sync {namespace}/{name}"))?;
    println!("Sync {namespace}/{name} is resumed.");
    Ok(())
}

/// Returns the change that resumes a Sync, or `None` if it is not suspended.
fn patch(sync: &SyncObject) -> Option<Value> {
    let mut patch = json!({});
    if let Some(at) = resumed_at(sync) {
        patch["metadata"] = json!({"annotations": {RESUMED_ANNOTATION: at.to_string()}});
    }
    if sync.spec.suspend {
        patch["spec"] = json!({"suspend": false});
    }
    (patch != json!({})).then_some(patch)
}

/// Returns a time after which the Sync has not suspended itself, or `None` if it has not at all. The clock of the user is not
/// used: with a time in the future, the Sync would ignore the next move.
fn resumed_at(sync: &SyncObject) -> Option<Timestamp> {
    let is_moving = |condition: &&Condition| condition.type_ == "Moving" && condition.status == "True";
    let moving = sync.status.as_ref()?.conditions.iter().find(is_moving)?;
    // The time of a condition has no fractions of a second.
    moving.last_transition_time.0.checked_add(SignedDuration::from_secs(1)).ok()
}

#[cfg(test)]
mod tests {
    use chandler_view::{fixtures::fleet, suspend_and_retry::AnnotatedObjects};

    use super::*;

    #[test]
    fn what_is_still_suspended_is_named() {
        let mut fleet = fleet();
        fleet.placements[0].suspended = true;
        fleet.releases[0].suspended = true;
        let objects = AnnotatedObjects::Placement(&fleet.placements[0]);
        let text = text(&objects.resume(), &objects.suspended_clusters(&fleet), Some("platform/careful"));
        assert_eq!(
            text,
            "HelmChartProxy fleet/hello is resumed.\n\
             Its release on cluster alpha is still suspended: add --cluster alpha.\n\
             It stays suspended as long as AddonPolicy platform/careful has `suspend: true`.\n"
        );
    }

    #[test]
    fn a_suspended_or_moved_sync_is_resumed() {
        let annotations = json!({"annotations": {"chandler.dev/resumed-at": "1970-01-01T00:00:01Z"}});
        let rows = [
            (false, "False", None),
            (true, "False", Some(json!({"spec": {"suspend": false}}))),
            (true, "True", Some(json!({"metadata": annotations, "spec": {"suspend": false}}))),
            (false, "True", Some(json!({"metadata": annotations}))),
        ];
        for (suspend, moving, expected) in rows {
            let sync = serde_json::from_value(json!({
                "apiVersion": "chandler.dev/v1alpha1", "kind": "Sync", "metadata": {"name": "base"},
                "spec": {
                    "source": {"sourceRef": {"name": "git"}}, "serviceAccountName": "a", "suspend": suspend,
                },
                "status": {"conditions": [{
                    "type": "Moving", "status": moving, "reason": "Moving", "message": "",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                }]},
            }));
            assert_eq!(patch(&sync.unwrap()), expected, "{suspend} {moving}");
        }
    }
}
