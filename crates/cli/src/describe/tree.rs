//! A description as a tree of lines.

use std::fmt::Write as _;

use chandler_api::status::{DRIFTED, ObjectRecord};
use chandler_core::{conditions, source::short_revision};
use chandler_view::{
    description::{Description, PlacementView, ReleaseView},
    fleet::Health,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::output::{Color, Screen, age, duration};

/// A line and its children.
#[derive(Debug, Default)]
struct Node {
    line: String,
    children: Vec<Self>,
}

/// Maximum number of objects and of revisions that are listed per release. The rest are counted.
const MAX_LISTED: usize = 50;

pub fn text(description: &Description, screen: Screen, now: Timestamp) -> String {
    let writer = Writer { screen, now };
    let by_cluster = description.placement.is_some();
    let releases = description.releases.iter().map(|release| writer.release(release, by_cluster));
    let mut text = String::new();
    match (&description.placement, &description.cluster) {
        (Some(placement), _) => {
            let mut root = writer.placement(placement);
            root.children.extend(releases);
            root.children.extend(placement.missing.iter().map(|cluster| writer.missing(cluster)));
            root.write(&mut text);
        }
        (None, Some(cluster)) => {
            let root = Node { line: format!("Cluster {cluster}"), children: releases.collect() };
            root.write(&mut text);
        }
        (None, None) => releases.for_each(|release| release.write(&mut text)),
    }
    text
}

struct Writer {
    screen: Screen,
    now: Timestamp,
}

impl Writer {
    fn placement(&self, placement: &PlacementView) -> Node {
        let object = &placement.object;
        let version = placement.version.as_deref().unwrap_or("the newest version");
        let ready = placement.ready_clusters.as_ref().map(|ready| format!(", ready on {ready} clusters"));
        let deleting = placement
            .deletion_timestamp
            .as_ref()
            .map(|since| format!(", terminating for {}", self.age(since.0)));
        let line = format!(
            "{object}: {} {version}{}{}{}",
            placement.package,
            ready.unwrap_or_default(),
            self.suspended(placement.suspended),
            deleting.unwrap_or_default()
        );
        let policy = placement.policy.as_ref().map(|policy| Node::leaf(format!("AddonPolicy {policy}")));
        Node { line, children: policy.into_iter().chain(self.conditions(&placement.conditions)).collect() }
    }

    fn missing(&self, cluster: &str) -> Node {
        let state = self.screen.paint("Missing", Some(Color::Yellow));
        Node::leaf(format!(
            "{cluster}: {state}, the cluster is selected but has no release object; see the conditions above"
        ))
    }

    fn release(&self, release: &ReleaseView, by_cluster: bool) -> Node {
        let name = if by_cluster { release.cluster.clone() } else { release.add_on.clone() };
        let state = self.screen.paint(release.state.as_str(), Some(Color::for_state(release.state)));
        let version = release.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
        let revision = release.revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
        let commit = release.commit.as_deref().map(|commit| format!(", commit {}", short_revision(commit)));
        let commit = commit.unwrap_or_default();
        let helm = Some(&release.status).filter(|status| !status.is_empty());
        let helm = helm.map(|status| format!(", {status}")).unwrap_or_default();
        let health = release.health.map(|health| match health {
            Health::Healthy => ", healthy",
            Health::Unhealthy => ", unhealthy",
            Health::Unknown => ", health unknown",
        });
        let health = health.unwrap_or_default();
        let suspended = self.suspended(release.suspended);
        let ready = conditions::find(&release.conditions, "Ready");
        let since = ready
            .map(|ready| format!(", since {}", self.age(ready.last_transition_time.0)))
            .unwrap_or_default();
        let mut node = Node::leaf(format!(
            "{name}: {state}, {}{version}{commit}{revision}{helm}{health}{suspended}{since}",
            release.package
        ));
        let object = &release.object;
        let location = if by_cluster { String::new() } else { format!(" on cluster {}", release.cluster) };
        node.push(format!("release {}{location}, from {} {}", release.release, object.kind, object.name));
        node.children.extend(self.problems(release));
        if let Some(next_step) = &release.next_step {
            node.push(format!("next step: {next_step}"));
        }
        node.children.extend(objects(release));
        node.children.extend(self.history(release));
        node
    }

    fn problems(&self, release: &ReleaseView) -> Vec<Node> {
        let mut nodes = self.conditions(&release.conditions);
        if let Some(failure) = &release.last_failure {
            let times =
                if failure.count == 1 { "once".to_owned() } else { format!("{} times", failure.count) };
            let reported =
                release.conditions.iter().any(|condition| condition.message.contains(&failure.message));
            let message = if reported { String::new() } else { format!(": {}", failure.message) };
            let ago = self.age(failure.at.0);
            nodes.push(Node::leaf(format!(
                "last failure: {}, {times}, last {ago} ago{message}",
                failure.category
            )));
        }
        if let Some(retry) = &release.next_retry {
            let left = retry.0.duration_since(self.now).as_secs();
            let when = if left > 0 { format!("in {}", duration(left)) } else { "is due".to_owned() };
            nodes.push(Node::leaf(format!("next retry {when}; a change of the spec is applied immediately")));
        }
        if let Some(since) = &release.deletion_timestamp {
            let finalizers = release.finalizers.join(", ");
            nodes.push(Node::leaf(format!(
                "terminating for {}, waiting for finalizers {finalizers}",
                self.age(since.0)
            )));
        }
        nodes
    }

    /// Returns the conditions that are not as they should be or have a message. Leaves out `Ready` if it repeats another
    /// condition.
    fn conditions(&self, conditions: &[Condition]) -> Vec<Node> {
        let is_good = |condition: &Condition| condition.status == good_status(condition);
        let is_relevant = |condition: &&Condition| !is_good(condition) || !condition.message.is_empty();
        let is_repeated = |summary: &Condition| {
            summary.type_ == "Ready"
                && conditions.iter().filter(is_relevant).any(|other| {
                    other.type_ != "Ready"
                        && (&other.reason, &other.message) == (&summary.reason, &summary.message)
                })
        };
        let shown = conditions.iter().filter(is_relevant).filter(|condition| !is_repeated(condition));
        shown
            .map(|condition| {
                let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
                let since = self.age(last_transition_time.0);
                let color = (!is_good(condition)).then_some(Color::Yellow);
                let status = self.screen.paint(status, color);
                Node::leaf(format!("{type_} {status} for {since}, {reason}: {message}"))
            })
            .collect()
    }

    fn history(&self, release: &ReleaseView) -> Option<Node> {
        let revisions = release.history.iter().map(|record| {
            let version = record.version.as_deref().unwrap_or("version unknown");
            format!("{} {}, {version}, {} ago", record.revision, record.status, self.age(record.at.0))
        });
        (!release.history.is_empty()).then(|| Node::list("revisions".to_owned(), revisions))
    }

    fn suspended(&self, suspended: bool) -> String {
        if suspended {
            format!(", {}", self.screen.paint("suspended", Some(Color::Yellow)))
        } else {
            String::new()
        }
    }

    fn age(&self, then: Timestamp) -> String {
        age(then, self.now)
    }
}

fn objects(release: &ReleaseView) -> Option<Node> {
    let revision = release.inventory_revision.map(|revision| format!(" of revision {revision}"));
    let line = format!("{} objects{}", release.inventory.len(), revision.unwrap_or_default());
    (!release.inventory.is_empty()).then(|| Node::list(line, release.inventory.iter().map(object)))
}

fn object(object: &ObjectRecord) -> String {
    let ObjectRecord { kind, namespace, name, .. } = object;
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

impl Node {
    fn leaf(line: String) -> Self {
        Self { line, children: Vec::new() }
    }

    fn list(line: String, items: impl ExactSizeIterator<Item = String>) -> Self {
        let more = items.len().saturating_sub(MAX_LISTED);
        let mut children: Vec<_> = items.take(MAX_LISTED).map(Self::leaf).collect();
        if more > 0 {
            children.push(Self::leaf(format!("and {more} more: --output json")));
        }
        Self { line, children }
    }

    fn push(&mut self, line: String) {
        self.children.push(Self::leaf(line));
    }

    fn write(&self, text: &mut String) {
        text.push_str(&self.line);
        text.push('\n');
        self.write_children("", text);
    }

    fn write_children(&self, indent: &str, text: &mut String) {
        for (at, child) in self.children.iter().enumerate() {
            let last = at + 1 == self.children.len();
            let (branch, trunk) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let below = format!("{indent}{trunk}");
            let mut lines = child.line.lines();
            let _ = writeln!(text, "{indent}{branch}{}", lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(text, "{below}{line}");
            }
            child.write_children(&below, text);
        }
    }
}

/// Returns the status that a condition should have.
fn good_status(condition: &Condition) -> &'static str {
    if condition.type_ == DRIFTED { "False" } else { "True" }
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{fleet, ready, release};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placement_with_a_failing_release() {
        let mut fleet = fleet();
        let mut status =
            ready("False", "HelmInstallOrUpgradeFailed", "Conflict: it is taken (next retry at …)");
        status["lastFailure"] = json!({
            "category": "Conflict", "message": "it is taken", "input": "", "count": 3, "at": "2026-01-01T00:04:00Z",
        });
        status["status"] = json!("failed");
        status["inventoryRevision"] = json!(2);
        status["inventory"] = json!([
            {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "x"},
            {"apiVersion": "v1", "kind": "Namespace", "name": "y"},
        ]);
        status["history"] =
            json!([{"revision": 2, "status": "failed", "version": "1.0.0", "at": "2026-01-01T00:00:00Z"}]);
        fleet.releases[0] = release("hello", "alpha", &status);
        let description = Description::of_placement(&fleet, &fleet.placements[0], None);
        let text = text(&description, Screen::plain(None), "2026-01-01T00:05:00Z".parse().unwrap());
        let expected = "\
HelmChartProxy fleet/hello: hello the newest version, ready on 1/2 clusters
├─ Ready False for 5m, NotAllReady: ready on 1 of 2 clusters
├─ alpha: Failed, hello 1.0.0, revision 2, failed, since 5m
│  ├─ release default/hello, from HelmReleaseProxy hello-alpha
│  ├─ Ready False for 5m, HelmInstallOrUpgradeFailed: Conflict: it is taken (next retry at …)
│  ├─ last failure: Conflict, 3 times, last 60s ago
│  ├─ next retry in LEFT; a change of the spec is applied immediately
│  ├─ next step: decide who owns the object or field that the message names: delete the existing object, rename yours, or \
set takeOwnership in the options (objects) or `conflicts` in an AddonPolicy (fields)
│  ├─ 2 objects of revision 2
│  │  ├─ ConfigMap default/x
│  │  └─ Namespace y
│  └─ revisions
│     └─ 2 failed, 1.0.0, 5m ago
└─ bravo: Missing, the cluster is selected but has no release object; see the conditions above
";
        let retry = description.releases[0].next_retry.as_ref().unwrap().0;
        let left = retry.duration_since("2026-01-01T00:05:00Z".parse().unwrap()).as_secs();
        assert!((60..=240).contains(&left), "{left}");
        assert_eq!(text, expected.replace("LEFT", &duration(left)));
    }

    #[test]
    fn health_policy_and_suspension_are_shown() {
        let mut fleet = fleet();
        let mut status = ready("False", "Unhealthy", "Deployment default/web: 0 of 2 replicas are available");
        let mut healthy = status["conditions"][0].clone();
        healthy["type"] = json!("Healthy");
        status["conditions"].as_array_mut().unwrap().push(healthy);
        fleet.releases[0] = release("hello", "alpha", &status);
        fleet.releases[0].suspended = true;
        fleet.placements[0].suspended = true;
        fleet.placements[0].policy = serde_json::from_value(json!({"name": "careful"})).unwrap();
        let description = Description::of_placement(&fleet, &fleet.placements[0], Some("alpha"));
        let text = text(&description, Screen::plain(None), "2026-01-01T00:05:00Z".parse().unwrap());
        let expected = "\
HelmChartProxy fleet/hello: hello the newest version, ready on 1/2 clusters, suspended
├─ AddonPolicy careful
├─ Ready False for 5m, NotAllReady: ready on 1 of 2 clusters
└─ alpha: Failed, hello 1.0.0, revision 2, unhealthy, suspended, since 5m
   ├─ release default/hello, from HelmReleaseProxy hello-alpha
   ├─ Healthy False for 5m, Unhealthy: Deployment default/web: 0 of 2 replicas are available
   └─ next step: check the object that the message names on the workload cluster; Chandler reports it and does not change it
";
        assert_eq!(text, expected);
    }

    #[test]
    fn drift_is_shown_and_its_absence_is_not() {
        let text_of = |status: &str, reason: &str, message: &str| {
            let mut fleet = fleet();
            let mut conditions = ready("True", "Ready", "");
            let mut drifted = ready(status, reason, message)["conditions"][0].clone();
            drifted["type"] = json!("Drifted");
            conditions["conditions"].as_array_mut().unwrap().push(drifted);
            fleet.releases[0] = release("hello", "alpha", &conditions);
            let description = Description::of_placement(&fleet, &fleet.placements[0], Some("alpha"));
            text(&description, Screen::plain(None), "2026-01-01T00:05:00Z".parse().unwrap())
        };
        let drifted = text_of("True", "Drifted", "ConfigMap default/web is missing");
        assert!(
            drifted.contains("Drifted True for 5m, Drifted: ConfigMap default/web is missing"),
            "{drifted}"
        );
        let in_sync = text_of("False", "InSync", "");
        assert!(!in_sync.contains("Drifted"), "{in_sync}");
    }

    #[test]
    fn a_cluster_lists_its_add_ons() {
        let description = Description::of_cluster(&fleet(), "fleet", "alpha").unwrap();
        let text = text(&description, Screen::plain(None), "2026-01-01T00:05:00Z".parse().unwrap());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "Cluster alpha");
        assert!(lines[1].starts_with("├─ faulty: Failed"), "{text}");
        assert!(lines[2].contains("release default/faulty on cluster alpha"), "{text}");
        assert!(Description::of_cluster(&fleet(), "fleet", "zulu").is_err());
    }
}
