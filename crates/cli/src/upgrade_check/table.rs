//! Formats a report as text.

use std::{collections::BTreeSet, fmt::Write as _};

use chandler_core::resolution::moment_text;
use chandler_view::upgrade_check::{
    ClusterOutcome, ClusterReport, ExtensionOutcome, ExtensionReport, Report,
};

use crate::output::{Cell, Color, Screen, align_columns};

/// Returns a table per cluster and, if there are several, a summary.
pub fn text(report: &Report, screen: Screen) -> String {
    let namespaces: BTreeSet<_> = report.clusters.iter().map(|cluster| &cluster.namespace).collect();
    let several_namespaces = namespaces.len() > 1;
    let mut texts: Vec<_> =
        report.clusters.iter().map(|cluster| cluster_text(cluster, several_namespaces, screen)).collect();
    if report.clusters.len() > 1 {
        texts.push(format!("{}\n", report.summary));
    }
    texts.join("\n")
}

fn cluster_text(cluster: &ClusterReport, several_namespaces: bool, screen: Screen) -> String {
    let ClusterReport { namespace, name, kubernetes, to, outcome, message, extensions } = cluster;
    let name = if several_namespaces { format!("{namespace}/{name}") } else { name.clone() };
    let (label, color) = match outcome {
        ClusterOutcome::Upgradable => ("upgradable", Color::Green),
        ClusterOutcome::UpToDate => ("up to date", Color::Green),
        ClusterOutcome::Blocked => ("blocked", Color::Red),
        ClusterOutcome::Unknown => ("unknown", Color::Yellow),
    };
    let label = screen.paint(label, Some(color));
    let versions = [kubernetes, to].map(|version| version.as_deref().unwrap_or("?")).join(" → ");
    let mut text = format!("{name}: Kubernetes {versions}: {label}\n");
    match outcome {
        ClusterOutcome::Upgradable | ClusterOutcome::Blocked if extensions.is_empty() => {
            text.push_str("no extensions\n");
        }
        ClusterOutcome::Upgradable | ClusterOutcome::Blocked => text.push_str(&table(extensions, screen)),
        ClusterOutcome::UpToDate | ClusterOutcome::Unknown => {}
    }
    if !message.is_empty() {
        let _ = writeln!(text, "{message}");
    }
    text
}

fn table(extensions: &[ExtensionReport], screen: Screen) -> String {
    let titles = ["EXTENSION", "RUNNING", "OUTCOME", "TO", "WHEN", "REASON"];
    let mut rows = vec![titles.map(Cell::plain).to_vec()];
    for extension in extensions {
        let or_dash = |text: Option<&str>| Cell::plain(text.unwrap_or("-"));
        let (outcome, color) = match extension.outcome {
            ExtensionOutcome::Stays => ("stays", None),
            ExtensionOutcome::StaysIncompatible => ("stays incompatible", Some(Color::Yellow)),
            ExtensionOutcome::Moves => ("moves", Some(Color::Cyan)),
            ExtensionOutcome::Blocks => ("blocks", Some(Color::Red)),
        };
        let when = extension.when.map(moment_text);
        rows.push(vec![
            Cell::plain(&extension.name),
            or_dash(extension.running.as_deref()),
            Cell { text: outcome.to_owned(), color },
            or_dash(extension.to.as_deref()),
            or_dash(when),
            or_dash(extension.reason.as_deref()),
        ]);
    }
    align_columns(&rows, screen)
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{mixed_input, report, resolution_input};

    use super::*;

    #[test]
    fn one_table_per_cluster_and_a_summary() {
        let compatible = resolution_input(&[("base", &[("1.0.0", "*")])]);
        let report = Report::new(vec![
            report("alpha", mixed_input(), None),
            report("bravo", compatible, Some("v1.35.2")),
            report("new", resolution_input(&[]), None),
        ]);
        let expected = "\
alpha: Kubernetes 1.34.4 → 1.35: blocked
EXTENSION   RUNNING   OUTCOME   TO       WHEN                      REASON
app         1.0.0     blocks    -        -                         app 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0
base        1.0.0     stays     -        -                         -
net         1.34.0    moves     1.35.0   after the control plane   1.34.0 needs Kubernetes ~1.34.0, the cluster has 1.35.0
publish compatible versions, or force the upgrade by annotating the Cluster with \
chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade

bravo: Kubernetes 1.34.4 → 1.35.2: upgradable
EXTENSION   RUNNING   OUTCOME   TO   WHEN   REASON
base        1.0.0     stays     -    -      -

new: Kubernetes 1.34.4 → 1.35: upgradable
no extensions

3 clusters: 2 upgradable, 1 blocked
";
        assert_eq!(text(&report, Screen::plain(None)), expected);
    }
}
