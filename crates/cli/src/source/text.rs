//! Sources as text.

use std::fmt::Write as _;

use chandler_core::source::{short_revision, summary};
use chandler_view::sources::{SourceUser, SourceView};

use crate::output::{table, truncate};

/// Maximum length of the subject of a commit in a table.
const SUBJECT_LENGTH: usize = 60;

pub fn sources(views: &[SourceView]) -> String {
    if views.is_empty() {
        return "No Source found. Use --all-namespaces for all namespaces.\n".to_owned();
    }
    let row = |view: &SourceView| {
        [
            view.namespace.clone(),
            view.name.clone(),
            view.ready.clone(),
            view.reason.clone(),
            follows(view),
            view.revision.as_deref().map_or("-", short_revision).to_owned(),
            truncate(subject(view), SUBJECT_LENGTH),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NAMESPACE", "NAME", "READY", "REASON", "FOLLOWS", "COMMIT", "SUBJECT"], &rows)
}

/// Returns what a Source follows: `-` if it is suspended.
fn follows(view: &SourceView) -> String {
    if view.suspended {
        return "- (suspended)".to_owned();
    }
    let pinned = ["commit ", "digest "].iter().find_map(|kind| view.reference.strip_prefix(kind));
    match pinned {
        Some(revision) => format!("{} (pinned)", short_revision(revision)),
        None => view.reference.clone(),
    }
}

fn subject(view: &SourceView) -> &str {
    view.commit.as_ref().map_or("", |commit| &commit.subject)
}

/// Returns the commit of a Source with its author and subject.
pub fn commit(view: &SourceView) -> String {
    match (&view.commit, &view.revision) {
        (Some(commit), _) => summary(commit),
        (None, Some(revision)) => revision.clone(),
        (None, None) => "no revision".to_owned(),
    }
}

/// Returns the description of a Source.
pub fn source(view: &SourceView, users: &[SourceUser]) -> String {
    let mut text = format!("Source {}/{}\n", view.namespace, view.name);
    let suspended = if view.suspended { ", suspended" } else { "" };
    let signer = view.verified_by.clone();
    let lines = [
        ("repository", format!("{}, {}, every {}{suspended}", view.url, view.reference, view.interval)),
        ("ready", format!("{}, {}", view.ready, view.reason)),
        ("message", view.message.clone()),
        ("commit", commit(view)),
        ("signed by", signer.unwrap_or_default()),
    ];
    for (title, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
        let _ = writeln!(text, "  {title}: {line}");
    }
    if !view.history.is_empty() {
        let rows: Vec<_> = view
            .history
            .iter()
            .map(|one| [one.revision.clone(), one.at.0.to_string(), truncate(&one.subject, SUBJECT_LENGTH)])
            .collect();
        let _ = write!(text, "\n{}", table(["COMMIT", "FETCHED", "SUBJECT"], &rows));
    }
    let rows: Vec<_> = users.iter().map(user).collect();
    if rows.is_empty() {
        text.push_str("\nNo ExtensionInstance and no Sync uses it.\n");
    } else {
        let _ = write!(text, "\n{}", table(["NAMESPACE", "USED BY", "COMMIT", "RUNNING", "BEHIND"], &rows));
    }
    text
}

fn user(user: &SourceUser) -> [String; 5] {
    let running: Vec<_> = user
        .revisions
        .iter()
        .map(|count| format!("{}: {}/{}", short_revision(&count.revision), count.ready, count.clusters))
        .collect();
    [
        user.object.namespace.clone(),
        format!("{} {}", user.object.kind, user.object.name),
        user.revision.as_deref().map_or("-", short_revision).to_owned(),
        if running.is_empty() { "-".to_owned() } else { running.join(", ") },
        user.behind.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{folder_fleet, source as source_object};

    use super::*;

    const NEW: &str = "3f1a354000000000000000000000000000000000";

    #[test]
    fn a_list_shows_what_sources_follow() {
        let view = SourceView::new(&source_object("apps", &[NEW]));
        let pinned =
            SourceView { name: "fixed".to_owned(), reference: format!("commit {NEW}"), ..view.clone() };
        let suspended = SourceView { name: "still".to_owned(), suspended: true, ..view.clone() };
        let expected = "\
NAMESPACE   NAME    READY     REASON         FOLLOWS            COMMIT    SUBJECT
fleet       apps    Unknown   NotPolledYet   branch main        3f1a354   a change
fleet       fixed   Unknown   NotPolledYet   3f1a354 (pinned)   3f1a354   a change
fleet       still   Unknown   NotPolledYet   - (suspended)      3f1a354   a change
";
        assert_eq!(sources(&[view, pinned, suspended]), expected);
        assert!(sources(&[]).starts_with("No Source found"));
    }

    #[test]
    fn a_description_shows_history_and_users() {
        let view = SourceView::new(&source_object("apps", &[NEW]));
        let fleet = folder_fleet(&[], NEW, &["alpha"]);
        let users = view.users(&fleet, &[], "platform");
        let expected = format!(
            "\
Source fleet/apps
  repository: https://git.example/apps.git, branch main, every 1m
  ready: Unknown, NotPolledYet
  commit: {NEW} by Anna: a change

COMMIT                                     FETCHED                SUBJECT
{NEW}   2026-01-01T00:00:00Z

NAMESPACE   USED BY                 COMMIT    RUNNING   BEHIND
fleet       ExtensionInstance web   3f1a354   -         1
"
        );
        assert_eq!(source(&view, &users), expected);
        assert!(source(&view, &[]).contains("no Sync uses it"));
    }
}
