//! A report as text.

use std::{collections::BTreeSet, fmt::Write as _};

use chandler_core::resolution::moment_text;
use chandler_view::upgrade_check::{ClusterReport, ExtensionReport, Fate, Report, Verdict};

use crate::output::{Cell, Colour, Screen, aligned};

/// A block per cluster and, if there are several, a line about all of them.
pub fn text(report: &Report, screen: Screen) -> String {
    let namespaces: BTreeSet<_> = report.clusters.iter().map(|cluster| &cluster.namespace).collect();
    let several = namespaces.len() > 1;
    let mut blocks: Vec<_> = report.clusters.iter().map(|cluster| block(cluster, several, screen)).collect();
    if report.clusters.len() > 1 {
        blocks.push(format!("{}\n", report.summary));
    }
    blocks.join("\n")
}

fn block(cluster: &ClusterReport, several_namespaces: bool, screen: Screen) -> String {
    let ClusterReport { namespace, name, kubernetes, to, verdict, message, extensions } = cluster;
    let name = if several_namespaces { format!("{namespace}/{name}") } else { name.clone() };
    let (word, colour) = match verdict {
        Verdict::Upgradable => ("can go", Colour::Green),
        Verdict::UpToDate => ("there already", Colour::Green),
        Verdict::Blocked => ("blocked", Colour::Red),
        Verdict::Unknown => ("not known", Colour::Yellow),
    };
    let word = screen.paint(word, Some(colour));
    let way = [kubernetes, to].map(|version| version.as_deref().unwrap_or("?")).join(" → ");
    let mut text = format!("{name}: Kubernetes {way}: {word}\n");
    match verdict {
        Verdict::Upgradable | Verdict::Blocked if extensions.is_empty() => text.push_str("no extensions\n"),
        Verdict::Upgradable | Verdict::Blocked => text.push_str(&table(extensions, screen)),
        Verdict::UpToDate | Verdict::Unknown => {}
    }
    if !message.is_empty() {
        let _ = writeln!(text, "{message}");
    }
    text
}

fn table(extensions: &[ExtensionReport], screen: Screen) -> String {
    let titles = ["EXTENSION", "RUNS", "OUTCOME", "TO", "WHEN", "WHY"];
    let mut rows = vec![titles.map(Cell::plain).to_vec()];
    for extension in extensions {
        let or_dash = |text: Option<&str>| Cell::plain(text.unwrap_or("-"));
        let (outcome, colour) = match extension.outcome {
            Fate::Stays => ("stays", None),
            Fate::StaysUnfit => ("stays unfit", Some(Colour::Yellow)),
            Fate::Moves => ("moves", Some(Colour::Cyan)),
            Fate::Blocks => ("blocks", Some(Colour::Red)),
        };
        let when = extension.when.map(moment_text);
        rows.push(vec![
            Cell::plain(&extension.name),
            or_dash(extension.running.as_deref()),
            Cell { text: outcome.to_owned(), colour },
            or_dash(extension.to.as_deref()),
            or_dash(when),
            or_dash(extension.because.as_deref()),
        ]);
    }
    aligned(&rows, screen)
}

#[cfg(test)]
mod tests {
    use chandler_view::fixtures::{mixed, question, report};

    use super::*;

    #[test]
    fn a_block_per_cluster_and_a_line_for_all() {
        let fine = question(&[("base", &[("1.0.0", "*")])]);
        let told = Report::new(vec![
            report("alpha", mixed(), None),
            report("bravo", fine, Some("v1.35.2")),
            report("new", question(&[]), None),
        ]);
        let expected = "\
alpha: Kubernetes 1.34.4 → 1.35: blocked
EXTENSION   RUNS     OUTCOME   TO       WHEN                      WHY
app         1.0.0    blocks    -        -                         app 1.0.0 needs Kubernetes <1.35, the cluster has 1.35.0
base        1.0.0    stays     -        -                         -
net         1.34.0   moves     1.35.0   after the control plane   1.34.0 needs Kubernetes ~1.34.0, the cluster has 1.35.0
publish versions that fit, or let the upgrade go on all the same by annotating the Cluster with \
chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade

bravo: Kubernetes 1.34.4 → 1.35.2: can go
EXTENSION   RUNS    OUTCOME   TO   WHEN   WHY
base        1.0.0   stays     -    -      -

new: Kubernetes 1.34.4 → 1.35: can go
no extensions

3 clusters: 2 can go, 1 blocked
";
        assert_eq!(text(&told, Screen::plain(None)), expected);
    }
}
