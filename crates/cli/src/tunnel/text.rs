//! Tunnels as text.

use std::fmt::Write as _;

use chandler_view::tunnels::TunnelView;
use jiff::Timestamp;

use crate::output::{age, table, truncate};

/// Maximum length of a message in a table.
const MESSAGE_LENGTH: usize = 60;

pub fn tunnels(views: &[TunnelView], now: Timestamp) -> String {
    if views.is_empty() {
        return "No tunnel found. Use --all-namespaces for all namespaces, and `chandler tunnel enable CLUSTER` to enable one.\n"
            .to_owned();
    }
    let row = |view: &TunnelView| {
        [
            view.namespace.clone(),
            view.cluster.clone(),
            view.state.to_string(),
            view.agents.len().to_string(),
            last_seen(view, now),
            truncate(&view.message, MESSAGE_LENGTH),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NAMESPACE", "CLUSTER", "STATE", "CONNECTIONS", "LAST SEEN", "MESSAGE"], &rows)
}

/// Returns when an agent was connected: `now`, an age, or `-` if none ever was.
fn last_seen(view: &TunnelView, now: Timestamp) -> String {
    match (&view.last_seen, view.agents.is_empty()) {
        (_, false) => "now".to_owned(),
        (Some(time), true) => format!("{} ago", age(time.0, now)),
        (None, true) => "-".to_owned(),
    }
}

/// Returns the description of a tunnel.
pub fn tunnel(view: &TunnelView, now: Timestamp) -> String {
    let mut text = format!("Tunnel of Cluster {}/{}\n", view.namespace, view.cluster);
    let lines = [
        ("state", view.state.to_string()),
        ("message", view.message.clone()),
        ("next step", view.next_step().unwrap_or_default()),
        ("last seen", last_seen(view, now)),
        ("hubs", view.hubs.join(", ")),
        ("API server", view.endpoint.clone().unwrap_or_else(|| "not known yet".to_owned())),
        ("agents connect to", view.target.clone()),
        ("id", format!("{}, epoch {}", view.id, view.epoch)),
    ];
    for (title, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
        let _ = writeln!(text, "  {title}: {line}");
    }
    if !view.agents.is_empty() {
        let rows: Vec<_> = view
            .agents
            .iter()
            .map(|agent| {
                [agent.node.clone(), agent.version.clone(), agent.hub.clone(), age(agent.since.0, now)]
            })
            .collect();
        let _ = write!(text, "\n{}", table(["NODE", "AGENT", "HUB", "CONNECTED"], &rows));
    }
    if !view.conditions.is_empty() {
        let rows: Vec<_> = view
            .conditions
            .iter()
            .map(|condition| {
                let since = age(condition.last_transition_time.0, now);
                [condition.type_.clone(), condition.status.clone(), condition.reason.clone(), since]
            })
            .collect();
        let _ = write!(text, "\n{}", table(["CONDITION", "STATUS", "REASON", "SINCE"], &rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{tunnel as connected, tunnel_with};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    #[test]
    fn a_list_shows_states_and_connections() {
        let mut waiting = tunnel_with("green", &[("Joined", "False"), ("Connected", "False")]);
        if let Some(status) = &mut waiting.status {
            status.agents.clear();
        }
        let views = [TunnelView::new(&connected("blue")), TunnelView::new(&waiting)];
        let expected = "\
NAMESPACE   CLUSTER   STATE             CONNECTIONS   LAST SEEN   MESSAGE
fleet       blue      Ready             1             now
fleet       green     WaitingForAgent   0             -
";
        assert_eq!(tunnels(&views, now()), expected);
        assert!(tunnels(&[], now()).starts_with("No tunnel found"));
    }

    #[test]
    fn a_description_shows_agents_and_conditions() {
        let view = TunnelView::new(&connected("blue"));
        let expected = "\
Tunnel of Cluster fleet/blue
  state: Ready
  last seen: now
  hubs: hub.example:443
  API server: 10.0.0.10:6443
  agents connect to: 127.0.0.1:6443
  id: 0123456789abcdef0123456789abcdef, epoch 1

NODE     AGENT   HUB              CONNECTED
node-1   0.1.0   chandler-hub-a   10m

CONDITION           STATUS   REASON              SINCE
Joined              True     Joined              10m
Connected           True     Connected           10m
KubeconfigProxied   True     KubeconfigProxied   10m
Ready               True     Ready               10m
";
        assert_eq!(tunnel(&view, now()), expected);
    }
}
