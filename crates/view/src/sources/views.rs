//! Sources as commands show them. Pure.

use chandler_api::extensions::{
    RevisionCount, Source, SourceRef, SourceRevision, SourceRevisionRecord, SyncObject,
};
use chandler_core::{conditions, extension::namespace_of, source::Origin, url_login::WithoutLogin};
use kube::ResourceExt as _;
use serde::Serialize;

use super::SourceReference;
use crate::fleet::{Fleet, ObjectName};

/// A Source.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    pub namespace: String,
    pub name: String,
    pub url: String,
    /// What is fetched, for example `branch main`.
    #[serde(rename = "ref")]
    pub reference: String,
    pub interval: String,
    pub pinned: bool,
    pub suspended: bool,
    /// Status of the condition `Ready`.
    pub ready: String,
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<SourceRevisionRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<SourceRevision>,
}

/// An object that uses a Source.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceUser {
    pub object: ObjectName,
    /// The last revision that packages were made of, or that was applied completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The revisions of the releases. Empty for a Sync.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<RevisionCount>,
    /// Number of clusters that do not have the package of `revision`.
    pub behind: u32,
}

impl SourceView {
    pub fn new(source: &Source) -> Self {
        let (spec, status) = (&source.spec, source.status.clone().unwrap_or_default());
        let ready = conditions::find(&status.conditions, "Ready");
        let reference = SourceReference::of(spec);
        let text = |field: fn(&_) -> &String| ready.map(|ready| field(ready).clone());
        Self {
            namespace: source.namespace().unwrap_or_default(),
            name: source.name_any(),
            url: WithoutLogin(&Origin::of(spec).map(Origin::url).unwrap_or_default()).to_string(),
            pinned: reference.as_ref().is_ok_and(SourceReference::is_pinned),
            reference: reference.map_or_else(|failure| failure.message, |reference| reference.to_string()),
            interval: spec.interval.0.clone(),
            suspended: spec.suspend,
            ready: text(|ready| &ready.status).unwrap_or_else(|| "Unknown".to_owned()),
            reason: text(|ready| &ready.reason).unwrap_or_else(|| "NotPolledYet".to_owned()),
            message: text(|ready| &ready.message).unwrap_or_default(),
            revision: status.revision,
            commit: status.commit,
            verified_by: status.verified_by,
            history: status.history,
        }
    }

    /// Returns the ExtensionInstances and Syncs that use the Source. `platform` is the namespace of the platform.
    pub fn users(&self, fleet: &Fleet, syncs: &[SyncObject], platform: &str) -> Vec<SourceUser> {
        let is_this = |reference: &SourceRef, namespace: &str| {
            reference.name == self.name
                && namespace_of(reference.scope, namespace, platform) == self.namespace
        };
        let mut users = Vec::new();
        for placement in &fleet.placements {
            let namespace = &placement.object.namespace;
            for progress in placement.sources.iter().filter(|one| is_this(&one.source_ref, namespace)) {
                users.push(SourceUser {
                    object: placement.object.clone(),
                    revision: progress.revision.clone(),
                    revisions: progress.revisions.clone(),
                    behind: progress.behind,
                });
            }
        }
        for sync in syncs {
            let namespace = sync.namespace().unwrap_or_default();
            if is_this(&sync.spec.source.source_ref, &namespace) {
                let applied = sync.status.as_ref().and_then(|status| status.last_applied.as_ref());
                users.push(SourceUser {
                    object: ObjectName { kind: "Sync".to_owned(), namespace, name: sync.name_any() },
                    revision: applied.map(|applied| applied.revision.clone()),
                    revisions: Vec::new(),
                    behind: 0,
                });
            }
        }
        users.sort_by(|a, b| a.object.cmp(&b.object));
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{folder_fleet, source};

    #[test]
    fn a_source_without_a_status_has_not_been_polled() {
        let view = SourceView::new(&source("apps", &[]));
        assert_eq!(
            (&*view.ready, &*view.reason, &*view.reference),
            ("Unknown", "NotPolledYet", "branch main")
        );
        assert!(!view.pinned && !view.suspended && view.revision.is_none());
    }

    #[test]
    fn instances_of_the_namespace_use_a_source() {
        let view = SourceView::new(&source("apps", &["c2", "c1"]));
        let fleet = folder_fleet(&[("alpha", "c2", "True")], "c2", &["bravo"]);
        let users = view.users(&fleet, &[], "platform");
        assert_eq!((users.len(), users[0].behind, users[0].revision.as_deref()), (1, 1, Some("c2")));
        let of_platform = SourceView { namespace: "platform".to_owned(), ..view };
        assert_eq!(of_platform.users(&fleet, &[], "platform"), []);
    }
}
