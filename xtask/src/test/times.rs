//! How long the tests took: from what they have recorded, and from what `cargo test` prints.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Display, Formatter},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use serde_json::Value;
use tempfile::TempDir;

use crate::duration::format_duration;

/// The file to which tests append what they do; see `test_record` in `crates/sandbox`.
pub const RECORD: &str = "CHANDLER_TEST_RECORD";
/// The directory with those of all test processes.
const TESTS: &str = "chandler-tests";
/// Number of tests that are listed.
const LISTED: usize = 30;
/// Binaries that take less time are not listed.
const SHORT: Duration = Duration::from_secs(5);

/// Collects how long tests take while they run.
pub struct TestTimes {
    folder: TempDir,
    binaries: Vec<(String, Duration)>,
    /// The binary that runs.
    running: String,
}

impl TestTimes {
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("chandler-test-record").tempdir()?;
        Ok(Self { folder, binaries: Vec::new(), running: String::new() })
    }

    /// Returns the file to which tests append.
    pub fn record(&self) -> PathBuf {
        self.folder.path().join("lines")
    }

    /// Reads a line of `cargo test`.
    pub fn read(&mut self, line: &str) {
        if let Some(binary) = started_binary(line) {
            binary.clone_into(&mut self.running);
        }
        if let Some(took) = finished_in(line) {
            self.binaries.push((std::mem::take(&mut self.running), took));
        }
    }

    /// Returns whether tests of a binary run.
    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    pub fn summary(&self) -> Summary {
        let record = fs::read_to_string(self.record()).unwrap_or_default();
        Summary { binaries: self.binaries.clone(), ..Summary::of_record(&record) }
    }
}

/// Returns the binary from a line such as `Running tests/e2e/main.rs (target/debug/deps/e2e-0123456789abcdef)`.
fn started_binary(line: &str) -> Option<&str> {
    let (start, path) = line.strip_suffix(')')?.rsplit_once('(')?;
    let name = Path::new(path).file_name()?.to_str()?;
    start.contains("Running").then(|| name.rsplit_once('-').map_or(name, |(name, _)| name))
}

/// Returns the duration from a line such as `test result: ok. 2 passed; …; finished in 0.02s`.
fn finished_in(line: &str) -> Option<Duration> {
    let (start, seconds) = line.rsplit_once("finished in ")?;
    let seconds = seconds.trim_end().strip_suffix('s')?.parse().ok()?;
    start.contains("test result: ").then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// What a test, or all tests of a topic, have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    ran: Duration,
    /// The time for which tests waited until others, which run alone, had ended.
    waited: Duration,
    planes: u32,
    failed: bool,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.ran += other.ran;
        self.waited += other.waited;
        self.planes += other.planes;
        self.failed |= other.failed;
    }
}

/// Control planes or Clusters that were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Started {
    count: u32,
    /// The sum of the times until they were ready.
    took: Duration,
}

impl Started {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.took += took;
    }
}

/// How long all tests took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    tests: BTreeMap<String, Sum>,
    full: Started,
    bare: Started,
    clusters: Started,
    /// How often a control plane was used again.
    reused: u32,
    /// Why control planes could not be used again, and how often.
    discarded: BTreeMap<String, u32>,
    binaries: Vec<(String, Duration)>,
}

impl Summary {
    fn of_record(record: &str) -> Self {
        let lines: Vec<Value> = record.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_kind = |kind: &'static str| lines.iter().filter(move |line| line["record"] == kind);
        let text = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let time =
            |line: &Value, field: &str| Duration::from_millis(line[field].as_u64().unwrap_or_default());
        let mut summary = Self::default();
        for line in of_kind("test") {
            let [ran, waited] = ["ranMillis", "waitedMillis"].map(|field| time(line, field));
            let sum = Sum { ran, waited, planes: 0, failed: line["failed"] == true };
            summary.tests.entry(text(line, "test")).or_default().add(sum);
        }
        let names = of_kind("name").map(|line| {
            let process = line["process"].as_u64().unwrap_or_default().to_string();
            ((process, text(line, "name")), text(line, "test"))
        });
        let names: HashMap<_, _> = names.collect();
        let mut clusters = HashMap::new();
        for line in of_kind("assigned") {
            clusters.entry(text(line, "plane")).or_insert_with(|| text(line, "cluster"));
            summary.reused += u32::from(line["reused"] == true);
        }
        of_kind("cluster").for_each(|line| summary.clusters.add(time(line, "availableAfterMillis")));
        for line in of_kind("discarded") {
            *summary.discarded.entry(text(line, "reason")).or_default() += 1;
        }
        for line in of_kind("plane") {
            let planes = if line["full"] == true { &mut summary.full } else { &mut summary.bare };
            planes.add(time(line, "readyAfterMillis"));
            let directory = text(line, "directory");
            let directory = clusters.get(&directory).unwrap_or(&directory);
            let owner = owner(Path::new(directory), &names);
            if let Some(sum) = owner.and_then(|test| summary.tests.get_mut(test)) {
                sum.planes += 1;
            }
        }
        summary
    }

    fn topics(&self) -> BTreeMap<&str, (usize, Sum)> {
        let mut topics: BTreeMap<&str, (usize, Sum)> = BTreeMap::new();
        for (test, sum) in &self.tests {
            let topic = test.split_once("::").map_or(test.as_str(), |(topic, _)| topic);
            let (count, total) = topics.entry(topic).or_default();
            *count += 1;
            total.add(*sum);
        }
        topics
    }
}

/// Returns the test to which the directory of a control plane belongs. It contains the process of the test, and the name
/// of a directory or `NAMESPACE_CLUSTER`.
fn owner<'n>(directory: &Path, names: &'n HashMap<(String, String), String>) -> Option<&'n str> {
    let parts: Vec<_> = directory.iter().filter_map(|part| part.to_str()).collect();
    let process = parts.iter().skip_while(|part| **part != TESTS).nth(1)?;
    let name = |part: &str| part.split_once('_').map_or(part, |(namespace, _)| namespace).to_owned();
    let known = |part: &&str| names.get(&((*process).to_owned(), name(part)));
    parts.iter().rev().find_map(known).map(String::as_str)
}

impl Display for Summary {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.ran));
        let rows = tests.iter().take(LISTED).map(|(name, sum)| (name.as_str(), String::new(), **sum));
        table(formatter, &format!("the slowest of {} tests", tests.len()), "", rows.collect())?;

        let mut topics: Vec<_> = self.topics().into_iter().collect();
        topics.sort_by_key(|(_, (_, sum))| std::cmp::Reverse(sum.ran));
        let rows = topics.into_iter().map(|(name, (count, sum))| (name, count.to_string(), sum));
        table(formatter, "topic", "tests", rows.collect())?;

        writeln!(formatter, "\n{:60}  {:>8}", "binary", "took")?;
        let (long, short): (Vec<_>, Vec<_>) = self.binaries.iter().partition(|(_, took)| *took >= SHORT);
        for (name, took) in long {
            writeln!(formatter, "{name:60}  {:>8}", format_duration(*took))?;
        }
        let others = format!("{} others", short.len());
        let took = short.iter().map(|(_, took)| took).sum();
        writeln!(formatter, "{others:60}  {:>8}", format_duration(took))?;
        for (what, Started { count, took }) in [
            ("Clusters", self.clusters),
            ("full control planes", self.full),
            ("bare control planes", self.bare),
        ] {
            let took = format_duration(took);
            writeln!(formatter, "{count} {what} started; together {took} until ready")?;
        }
        writeln!(formatter, "{} times one was used again; not used again:", self.reused)?;
        let mut discarded: Vec<_> = self.discarded.iter().collect();
        discarded.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in discarded {
            writeln!(formatter, "{count:6}  {reason}")?;
        }
        Ok(())
    }
}

fn table(
    formatter: &mut Formatter<'_>,
    title: &str,
    count: &str,
    rows: Vec<(&str, String, Sum)>,
) -> fmt::Result {
    writeln!(formatter, "\n{title:80}  {count:>5}  {:>8}  {:>8}  {:>6}", "ran", "waited", "planes")?;
    for (name, count, Sum { ran, waited, planes, failed }) in rows {
        let [ran, waited] = [ran, waited].map(format_duration);
        let result = if failed { "  FAILED" } else { "" };
        writeln!(formatter, "{name:80}  {count:>5}  {ran:>8}  {waited:>8}  {planes:>6}{result}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = r#"{"record":"name","test":"sync::a","process":7,"name":"sync-1"}
{"record":"name","test":"sync::b","process":7,"name":"bare-2"}
{"record":"name","test":"sync::b","process":8,"name":"sync-1"}
{"record":"plane","directory":"/tmp/chandler-tests/7/sandbox-0/clusters/sync-1_alpha","full":true,"readyAfterMillis":6000}
{"record":"plane","directory":"/tmp/chandler-tests/7/bare-2","full":false,"readyAfterMillis":2000}
{"record":"plane","directory":"/tmp/chandler-tests/7/sandbox-0/clusters/plane-0","full":true,"readyAfterMillis":3000}
{"record":"assigned","plane":"/tmp/chandler-tests/7/sandbox-0/clusters/plane-0","cluster":"/tmp/chandler-tests/7/sandbox-0/clusters/sync-1_bravo","reused":false}
{"record":"assigned","plane":"/tmp/chandler-tests/7/sandbox-0/clusters/plane-0","cluster":"/tmp/chandler-tests/7/sandbox-0/clusters/bare-2_alpha","reused":true}
{"record":"cluster","availableAfterMillis":8000}
{"record":"discarded","cluster":"alpha","reason":"its processes were touched"}
{"record":"plane","directory":"/elsewhere","full":true,"readyAfterMillis":4000}
{"record":"test","test":"sync::a","startMillis":1,"waitedMillis":500,"ranMillis":60000,"failed":false}
{"record":"test","test":"sync::a","startMillis":2,"waitedMillis":0,"ranMillis":1000,"failed":true}
{"record":"test","test":"sync::b","startMillis":1,"waitedMillis":0,"ranMillis":30000,"failed":false}
{"record":"cut off"#;

    #[test]
    fn planes_and_times_are_those_of_their_tests() {
        let summary = Summary::of_record(RECORDED);
        let [a, b] = ["sync::a", "sync::b"].map(|test| summary.tests[test]);
        let seconds = Duration::from_secs;
        let waited = Duration::from_millis(500);
        assert_eq!(a, Sum { ran: seconds(61), waited, planes: 2, failed: true });
        assert_eq!(b, Sum { ran: seconds(30), waited: Duration::ZERO, planes: 1, failed: false });
        assert_eq!(summary.full, Started { count: 3, took: seconds(13) });
        assert_eq!(summary.bare, Started { count: 1, took: seconds(2) });
        assert_eq!(summary.clusters, Started { count: 1, took: seconds(8) });
        assert_eq!(summary.reused, 1);
        assert_eq!(summary.discarded["its processes were touched"], 1);
        let (count, topic) = summary.topics()["sync"];
        assert_eq!((count, topic.ran, topic.planes), (2, seconds(91), 3));
    }

    #[test]
    fn binaries_are_read_from_what_cargo_prints() {
        let mut times = TestTimes::new().unwrap();
        times.read("   Compiling chandler-api v0.1.0 (/src/crates/api)");
        assert!(!times.is_running());
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/chandler_api-0123456789abcdef)",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "\u{1b}[1m\u{1b}[92m     Running\u{1b}[0m tests/e2e/main.rs (target/debug/deps/e2e-0123456789abcdef)",
            "test a ... ok (finished in time)",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; finished in 61.50s",
        ] {
            times.read(line);
            assert_eq!(times.is_running(), !line.starts_with("test result"), "{line}");
        }
        let expected = [("chandler_api", 20), ("e2e", 61_500)]
            .map(|(name, millis)| (name.to_owned(), Duration::from_millis(millis)));
        assert_eq!(times.binaries, expected);
    }

    #[test]
    fn the_summary_lists_the_slowest_first() {
        let mut summary = Summary::of_record(RECORDED);
        summary.binaries = vec![("e2e".to_owned(), Duration::from_secs(61)), ("a".to_owned(), SHORT / 2)];
        let printed = summary.to_string();
        let rows: Vec<Vec<_>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [
            &["sync::a", "1m", "01s", "0m", "01s", "2", "FAILED"][..],
            &["sync", "2", "1m", "31s", "0m", "01s", "3", "FAILED"],
            &["e2e", "1m", "01s"],
            &["1", "others", "0m", "03s"],
            &["3", "full", "control", "planes", "started;", "together", "0m", "13s", "until", "ready"],
            &["1", "its", "processes", "were", "touched"],
        ] {
            assert!(rows.iter().any(|found| found == row), "{row:?} in\n{printed}");
        }
        assert!(printed.find("sync::a") < printed.find("sync::b"));
    }
}
