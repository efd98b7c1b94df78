//! Plans as text.

use std::fmt::Write as _;

use chandler_api::extensions::OnUnselect;
use chandler_core::change_plan::{
    ChangeAction, ClusterPlan, ObjectChange, ObjectDiff, ObjectPlan, ObjectRole, PlanPart, PlanSummary,
};

use crate::output::{Cell, Color, Screen, align_columns, strip_control_characters};

/// Returns a part of the plan with diffs.
pub fn part(part: PlanPart<'_>, screen: Screen) -> String {
    match part {
        PlanPart::Begin { object, has_clusters } => heading(object, has_clusters, screen),
        PlanPart::Cluster(cluster) => {
            let mut text = format!("{}\n", cluster_line(cluster, screen));
            for object in &cluster.objects {
                text.push_str(&object_text(object, screen));
            }
            text
        }
        PlanPart::End(_) => "\n".to_owned(),
    }
}

/// Returns a part of the plan as tables, without diffs. A table has columns as wide as its clusters need, so that they are in the
/// last part of an object.
pub fn summary_part(part: PlanPart<'_>, screen: Screen) -> String {
    match part {
        PlanPart::Begin { object, has_clusters } => heading(object, has_clusters, screen),
        PlanPart::Cluster(_) => String::new(),
        PlanPart::End(object) if object.clusters.is_empty() => "\n".to_owned(),
        PlanPart::End(object) => {
            let header = ["CLUSTER", "ACTION", "RELEASE", "VERSION", "OBJECTS", "MESSAGE"].map(Cell::plain);
            let rows = object.clusters.iter().map(row);
            let rows: Vec<_> = [header.to_vec()].into_iter().chain(rows).collect();
            format!("{}\n", align_columns(&rows, screen))
        }
    }
}

fn heading(plan: &ObjectPlan, has_clusters: bool, screen: Screen) -> String {
    let ObjectPlan { kind, namespace, name, error, .. } = plan;
    let mut text = format!("{}\n", one_line(&format!("{kind} {namespace}/{name}")));
    if let Some(error) = error {
        let error = screen.paint(&format!("error: {}", one_line(error)), Some(Color::Red));
        let _ = writeln!(text, "{error}");
    } else if !has_clusters {
        text.push_str("It selects no cluster, and has no release.\n");
    }
    text
}

/// Returns for example `alpha: upgrade default/hello 1.0.0 -> 1.1.0`.
fn cluster_line(plan: &ClusterPlan, screen: Screen) -> String {
    let mut line = one_line(&plan.cluster);
    match plan.action {
        Some(action) => {
            let _ = write!(line, ": {}", screen.paint(&action_text(plan, action), Some(color(action))));
            for part in [plan.release.clone(), versions(plan)].into_iter().flatten() {
                let _ = write!(line, " {}", one_line(&part));
            }
        }
        None => line.push(':'),
    }
    let message = message(plan);
    if message.is_empty() {
        return line;
    }
    let color = plan.error.as_ref().map(|_| Color::Red);
    let message = screen.paint(&message, color);
    if plan.action.is_some() { format!("{line} ({message})") } else { format!("{line} {message}") }
}

fn row(plan: &ClusterPlan) -> Vec<Cell> {
    let or_dash =
        |text: Option<String>| Cell::plain(text.map_or_else(|| "-".to_owned(), |text| one_line(&text)));
    let action = match plan.action {
        Some(action) => Cell { text: action_text(plan, action), color: Some(color(action)) },
        None => Cell { text: "failed".to_owned(), color: Some(Color::Red) },
    };
    let objects = Some(plan.objects.len()).filter(|count| *count > 0).map(|count| count.to_string());
    vec![
        Cell::plain(one_line(&plan.cluster)),
        action,
        or_dash(plan.release.clone()),
        or_dash(versions(plan)),
        or_dash(objects),
        or_dash(Some(message(plan)).filter(|message| !message.is_empty())),
    ]
}

fn action_text(plan: &ClusterPlan, action: ChangeAction) -> String {
    match plan.on_unselect {
        Some(OnUnselect::Orphan) => "remove (Orphan)".to_owned(),
        Some(OnUnselect::Uninstall) => "remove (Uninstall)".to_owned(),
        None => action.to_string(),
    }
}

fn versions(plan: &ClusterPlan) -> Option<String> {
    match (&plan.from_version, &plan.to_version) {
        (Some(from), Some(to)) if from != to => Some(format!("{from} -> {to}")),
        (Some(one), _) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    }
}

/// Returns a text of a cluster or of a file as one line without control characters, which could be terminal escape sequences.
fn one_line(text: &str) -> String {
    let text = strip_control_characters(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns what users have to know.
fn message(plan: &ClusterPlan) -> String {
    let error = plan.error.as_ref().map(|error| format!("error: {error}"));
    let held = plan.held.as_ref().map(|held| format!("held: {held}"));
    let parts: Vec<_> = [error, held, plan.note.clone()].into_iter().flatten().collect();
    one_line(&parts.join("; "))
}

fn object_text(object: &ObjectDiff, screen: Screen) -> String {
    let ObjectDiff { object: record, role, change, diff } = object;
    let mut text = String::new();
    if *role == ObjectRole::Hook {
        let _ = writeln!(text, "{} ({})", one_line(&format!("hook {record}")), change_text(*change));
    }
    for line in strip_control_characters(diff.as_str()).lines() {
        let _ = writeln!(text, "{}", screen.paint(line, line_color(line)));
    }
    text
}

fn change_text(change: ObjectChange) -> &'static str {
    match change {
        ObjectChange::Added => "added",
        ObjectChange::Changed => "changed",
        ObjectChange::Removed => "removed",
    }
}

fn line_color(line: &str) -> Option<Color> {
    match line.as_bytes().first() {
        Some(b'+') => Some(Color::Green),
        Some(b'-') => Some(Color::Red),
        Some(b'@') => Some(Color::Cyan),
        _ => None,
    }
}

fn color(action: ChangeAction) -> Color {
    match action {
        ChangeAction::Install | ChangeAction::Unchanged => Color::Green,
        ChangeAction::Upgrade => Color::Yellow,
        ChangeAction::Replace | ChangeAction::Remove => Color::Red,
    }
}

/// Returns the last line of a plan.
pub fn counts(summary: &PlanSummary) -> String {
    let PlanSummary { install, upgrade, replace, remove, unchanged, failed } = summary;
    let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!(
        "Plan: {install} to install, {upgrade} to upgrade, {replace} to replace, {remove} to remove, {unchanged} unchanged{failed}.\n"
    )
}

#[cfg(test)]
mod tests {
    use chandler_api::status::ObjectRecord;
    use chandler_core::change_plan::ChangePlan;

    use super::*;

    /// Returns all parts of a plan, and its last line.
    fn all(plan: &ChangePlan, part: fn(PlanPart<'_>, Screen) -> String) -> String {
        let parts = plan.objects.iter().flat_map(ObjectPlan::parts);
        let parts: String = parts.map(|one| part(one, Screen::plain(None))).collect();
        parts + &counts(&plan.summary)
    }

    fn plan() -> ChangePlan {
        let object = ObjectRecord {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "default".to_owned(),
            name: "hello".to_owned(),
        };
        let diff = "--- ConfigMap default/hello\n+++ ConfigMap default/hello\n@@ -1 +1 @@\n-color: red\n+color: \u{1b}blue\n";
        let changed = ObjectDiff {
            object,
            role: ObjectRole::Object,
            change: ObjectChange::Changed,
            diff: diff.to_owned().into(),
        };
        let release = Some("default/hello".to_owned());
        let upgrade = ClusterPlan {
            cluster: "alpha".to_owned(),
            release: release.clone(),
            action: Some(ChangeAction::Upgrade),
            from_version: Some("1.0.0".to_owned()),
            to_version: Some("1.1.0".to_owned()),
            held: Some("it is suspended".to_owned()),
            objects: vec![changed.clone(), ObjectDiff { role: ObjectRole::Hook, ..changed }],
            ..ClusterPlan::default()
        };
        let removal = ClusterPlan {
            cluster: "bravo".to_owned(),
            release,
            action: Some(ChangeAction::Remove),
            from_version: Some("1.0.0".to_owned()),
            on_unselect: Some(OnUnselect::Orphan),
            ..ClusterPlan::default()
        };
        let failed = ClusterPlan::failed("charlie", &"unreachable");
        let hello = ObjectPlan {
            kind: "HelmChartProxy".to_owned(),
            namespace: "fleet".to_owned(),
            name: "hello".to_owned(),
            error: None,
            clusters: vec![upgrade, removal, failed, ClusterPlan::unchanged("delta", None)],
        };
        let refused =
            ObjectPlan { error: Some("not accepted".to_owned()), clusters: Vec::new(), ..hello.clone() };
        let nothing = ObjectPlan { error: None, ..refused.clone() };
        ChangePlan::new(vec![hello, refused, nothing])
    }

    #[test]
    fn clusters_are_followed_by_their_diffs() {
        assert_eq!(
            all(&plan(), part),
            "HelmChartProxy fleet/hello\n\
             alpha: upgrade default/hello 1.0.0 -> 1.1.0 (held: it is suspended)\n\
             --- ConfigMap default/hello\n+++ ConfigMap default/hello\n@@ -1 +1 @@\n-color: red\n+color: blue\n\
             hook ConfigMap default/hello (changed)\n\
             --- ConfigMap default/hello\n+++ ConfigMap default/hello\n@@ -1 +1 @@\n-color: red\n+color: blue\n\
             bravo: remove (Orphan) default/hello 1.0.0\n\
             charlie: error: unreachable\n\
             delta: unchanged\n\n\
             HelmChartProxy fleet/hello\nerror: not accepted\n\n\
             HelmChartProxy fleet/hello\nIt selects no cluster, and has no release.\n\n\
             Plan: 0 to install, 1 to upgrade, 0 to replace, 1 to remove, 1 unchanged, 2 failed.\n"
        );
    }

    #[test]
    fn texts_of_clusters_cannot_control_the_terminal() {
        let escape = |text: &str| format!("{text}\u{1b}[2J\u{7}\nnext");
        let mut plan = plan();
        let cluster = &mut plan.objects[0].clusters[0];
        for text in
            [&mut cluster.release, &mut cluster.from_version, &mut cluster.to_version, &mut cluster.held]
        {
            *text = text.as_deref().map(escape);
        }
        for object in &mut cluster.objects {
            object.object.name = escape("hello");
            object.diff = escape(object.diff.as_str()).into();
        }
        cluster.cluster = escape("alpha");
        plan.objects[1].error = Some(escape("not accepted"));
        for printed in [all(&plan, part), all(&plan, summary_part)] {
            assert!(!printed.chars().any(|one| one.is_control() && one != '\n'), "{printed:?}");
            assert!(printed.contains("alpha[2J next"), "{printed}");
        }
    }

    #[test]
    fn a_summary_is_a_table() {
        let summary = all(&plan(), summary_part);
        assert!(
            summary.starts_with(
                "HelmChartProxy fleet/hello\n\
             CLUSTER   ACTION            RELEASE         VERSION          OBJECTS   MESSAGE\n\
             alpha     upgrade           default/hello   1.0.0 -> 1.1.0   2         held: it is suspended\n\
             bravo     remove (Orphan)   default/hello   1.0.0            -         -\n\
             charlie   failed            -               -                -         error: unreachable\n\
             delta     unchanged         -               -                -         -\n"
            ),
            "{summary}"
        );
    }
}
