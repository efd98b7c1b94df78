//! Formats a listing as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use chandler_core::source::short_revision;
use chandler_view::{
    fleet::State,
    listing::{Listing, Row},
};
use jiff::Timestamp;

use crate::output::{Cell, Color, Screen, age, align_columns, column_blocks, column_widths};

/// Maximum number of problems that are listed below the table. The rest are counted.
const MAX_PROBLEMS: usize = 5;
/// Maximum length of a message.
const MAX_MESSAGE: usize = 160;

/// Returns a table of clusters and add-ons. The longer dimension becomes the rows, so that the table stays narrow.
pub fn matrix(listing: &Listing, screen: Screen) -> String {
    let labels = Labels::new(&listing.releases);
    let cells: BTreeMap<_, _> =
        listing.releases.iter().map(|row| ((labels.cluster(row), labels.add_on(row)), state(row))).collect();
    let clusters: Vec<_> = unique(listing.releases.iter().map(|row| labels.cluster(row)));
    let add_ons: Vec<_> = unique(listing.releases.iter().map(|row| labels.add_on(row)));
    let clusters_as_rows = clusters.len() >= add_ons.len();
    let (rows, columns) = if clusters_as_rows { (&clusters, &add_ons) } else { (&add_ons, &clusters) };
    let mut table = vec![header(
        if clusters_as_rows { "CLUSTER" } else { "ADD-ON" },
        columns.iter().map(|name| name.to_uppercase()),
    )];
    for name in rows {
        let states = columns.iter().map(|other| {
            let key =
                if clusters_as_rows { (name.clone(), other.clone()) } else { (other.clone(), name.clone()) };
            cells.get(&key).cloned().unwrap_or_else(|| Cell::plain("-"))
        });
        table.push(std::iter::once(Cell::plain(name)).chain(states).collect());
    }
    format!("{}\n{}\n{}", fold(&table, screen), listing.summary, problems(&listing.releases, &labels, screen))
}

/// Returns one line per release.
pub fn wide(listing: &Listing, screen: Screen, now: Timestamp) -> String {
    let titles = [
        "ADD-ON", "PACKAGE", "STATE", "HEALTH", "VERSION", "COMMIT", "REVISION", "POLICY", "SINCE", "REASON",
        "MESSAGE",
    ];
    let mut table = vec![header("CLUSTER", titles.into_iter().map(str::to_owned))];
    let labels = Labels::new(&listing.releases);
    for row in &listing.releases {
        let or_dash = |text: Option<String>| Cell::plain(text.unwrap_or_else(|| "-".to_owned()));
        table.push(vec![
            Cell::plain(labels.cluster(row)),
            Cell::plain(labels.add_on(row)),
            Cell::plain(&row.package),
            state(row),
            or_dash(row.health.map(|health| health.to_string())),
            or_dash(row.version.clone()),
            or_dash(row.commit.as_deref().map(|commit| short_revision(commit).to_owned())),
            or_dash(row.revision.map(|revision| revision.to_string())),
            or_dash(row.policy.clone()),
            or_dash(row.since.as_ref().map(|since| age(since.0, now))),
            Cell::plain(&row.reason),
            Cell::plain(one_line(&row.message)),
        ]);
    }
    format!("{}\n{}\n", align_columns(&table, screen), listing.summary)
}

/// Returns the state of a row, and whether it is suspended: a suspended release that is up to date is ready.
fn state(row: &Row) -> Cell {
    let Cell { text, color } = Cell::state(row.state);
    Cell { text: if row.suspended { format!("{text} (suspended)") } else { text }, color }
}

/// Labels of clusters and add-ons, qualified by namespace or kind only if needed.
struct Labels {
    several_namespaces: bool,
    /// Names that are shared by add-ons of several kinds.
    ambiguous: BTreeSet<String>,
}

impl Labels {
    fn new(rows: &[Row]) -> Self {
        let namespaces: BTreeSet<_> = rows.iter().map(|row| &row.namespace).collect();
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for row in rows {
            kinds.entry(&row.add_on).or_default().insert(&row.kind);
        }
        let ambiguous =
            kinds.into_iter().filter(|(_, kinds)| kinds.len() > 1).map(|(name, _)| name.to_owned()).collect();
        Self { several_namespaces: namespaces.len() > 1, ambiguous }
    }

    fn cluster(&self, row: &Row) -> String {
        if self.several_namespaces {
            format!("{}/{}", row.namespace, row.cluster)
        } else {
            row.cluster.clone()
        }
    }

    fn add_on(&self, row: &Row) -> String {
        if self.ambiguous.contains(&row.add_on) {
            format!("{}/{}", row.kind, row.add_on)
        } else {
            row.add_on.clone()
        }
    }
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn header(first: &str, rest: impl Iterator<Item = String>) -> Vec<Cell> {
    std::iter::once(first.to_owned()).chain(rest).map(Cell::plain).collect()
}

/// Splits the table into several if it is wider than the screen.
fn fold(table: &[Vec<Cell>], screen: Screen) -> String {
    let parts = column_blocks(&column_widths(table), screen).into_iter().map(|columns| {
        let part: Vec<Vec<Cell>> =
            table.iter().map(|row| row[..1].iter().chain(&row[columns.clone()]).cloned().collect()).collect();
        align_columns(&part, screen)
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn problems(rows: &[Row], labels: &Labels, screen: Screen) -> String {
    let is_problem = |row: &&Row| matches!(row.state, State::Failed | State::Unreachable | State::Missing);
    let mut text = String::new();
    for row in rows.iter().filter(is_problem).take(MAX_PROBLEMS) {
        let state = screen.paint(row.state.as_str(), Some(Color::for_state(row.state)));
        let name = format!("{} on {}", labels.add_on(row), labels.cluster(row));
        let _ =
            writeln!(text, "  {name}: {state}, {}", one_line(&format!("{}: {}", row.reason, row.message)));
    }
    let more = rows.iter().filter(is_problem).count().saturating_sub(MAX_PROBLEMS);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more: --not-ready --output wide");
    }
    text
}

fn one_line(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match flat.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat.trim_end_matches(": ").trim_end_matches(':').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use chandler_view::{
        fixtures::{fleet, ready, release},
        fleet::Fleet,
        listing::Filter,
    };

    use super::*;

    fn listing(fleet: &Fleet) -> Listing {
        Listing::new(fleet, &Filter::default())
    }

    #[test]
    fn matrix_of_clusters_and_add_ons() {
        let text = matrix(&listing(&fleet()), Screen::plain(None));
        let expected = "\
CLUSTER   FAULTY   HELLO
alpha     Failed   Ready
bravo     -        Missing

2 add-ons on 2 clusters: 1 ready, 1 missing, 1 failed
  faulty on alpha: Failed, HelmInstallOrUpgradeFailed: Conflict: it is taken
  hello on bravo: Missing, NotAllReady: ready on 1 of 2 clusters
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_longer_dimension_becomes_the_rows() {
        let releases = ["a", "b", "c"]
            .map(|name| release(name, "alpha", &ready("True", "Ready", "")))
            .into_iter()
            .collect();
        let text = matrix(&listing(&Fleet { placements: vec![], releases }), Screen::plain(None));
        assert!(text.starts_with("ADD-ON   ALPHA\na        Ready\nb        Ready\n"), "{text}");
    }

    #[test]
    fn a_wide_table_is_folded() {
        let text = matrix(&listing(&fleet()), Screen::plain(Some(20)));
        assert!(
            text.starts_with("CLUSTER   FAULTY\nalpha     Failed\nbravo     -\n\nCLUSTER   HELLO\n"),
            "{text}"
        );
    }

    #[test]
    fn wide_shows_version_revision_age_and_reason() {
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let text = wide(&listing(&fleet()), Screen::plain(None), now);
        let line = text.lines().find(|line| line.contains("faulty")).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            cells[..11],
            [
                "alpha",
                "faulty",
                "faulty",
                "Failed",
                "-",
                "1.0.0",
                "-",
                "2",
                "-",
                "5m",
                "HelmInstallOrUpgradeFailed"
            ]
        );
        assert!(line.ends_with("Conflict: it is taken"), "{line}");
    }

    #[test]
    fn suspended_releases_are_marked() {
        let mut fleet = fleet();
        fleet.placements[0].suspended = true;
        let text = matrix(&listing(&fleet), Screen::plain(None));
        assert!(text.contains("alpha     Failed   Ready (suspended)\n"), "{text}");
    }
}
