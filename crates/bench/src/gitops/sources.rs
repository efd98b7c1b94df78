//! The Sources of the benchmark.

use anyhow::Result;
use chandler_api::extensions::Source;
use chandler_sandbox::{apply::apply, git_server::GitServer};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};

use crate::environment::{CA_KEY, CA_SECRET, NAMESPACE};

const GROUP_LABEL: &str = "bench";
const PARALLEL_APPLIES: usize = 8;

/// Sources of one repository.
#[derive(Clone, Copy, Debug)]
pub struct SourceGroup<'a> {
    pub name: &'a str,
    pub url: &'a str,
    pub interval: &'a str,
}

/// Returns a Source of a group.
pub fn object(name: &str, group: SourceGroup<'_>) -> Value {
    json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Source",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {GROUP_LABEL: group.name}},
        "spec": {
            "git": {"url": group.url}, "interval": group.interval,
            "certificateAuthority": {"name": CA_SECRET, "key": CA_KEY},
        },
    })
}

/// Applies so many Sources of a group.
pub async fn apply_group(client: &Client, group: SourceGroup<'_>, count: u32) -> Result<()> {
    let objects: Vec<_> =
        (1..=count).map(|index| object(&format!("{}-{index:03}", group.name), group)).collect();
    let applying = objects.iter().map(|object| apply(client, object));
    let _: Vec<()> = stream::iter(applying).buffer_unordered(PARALLEL_APPLIES).try_collect().await?;
    Ok(())
}

/// How many Sources of a group are Ready at a commit, and why another is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FetchedSources {
    pub count: u32,
    pub failure: Option<String>,
}

/// Returns which Sources of a group are Ready at a commit.
pub async fn fetched(client: &Client, group: &str, commit: &str) -> Result<FetchedSources> {
    let api: Api<Source> = Api::namespaced(client.clone(), NAMESPACE);
    let of_group = ListParams::default().labels(&format!("{GROUP_LABEL}={group}"));
    let mut fetched = FetchedSources::default();
    for source in api.list(&of_group).await?.items {
        let Some(status) = source.status else { continue };
        let Some(ready) = status.conditions.iter().find(|one| one.type_ == "Ready") else { continue };
        if ready.status != "True" {
            fetched.failure = Some(ready.message.clone());
        } else if status.revision.as_deref() == Some(commit) {
            fetched.count += 1;
        }
    }
    Ok(fetched)
}

/// Returns how often the refs of the server's repositories were listed.
pub fn lists_of_refs(server: &GitServer) -> u64 {
    server.requests().get("ls-refs").copied().unwrap_or_default()
}
