//! The tests of a package, such as Helm's test hooks, and what follows from them.

use chandler_api::{
    extensions::{TestFailure, TestPolicy},
    status::{TestRecord, TestState},
};

/// Whether the tests of a release have to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestNeed {
    /// The policy does not want them, or they have run.
    #[default]
    None,
    /// They have to run, but the release is ready without them.
    Optional,
    /// They have to run before the release is ready.
    Required,
    /// They have failed, and so has the release.
    Failed,
}

impl TestNeed {
    /// Returns whether the tests of a revision have to run. `tested` is the last result.
    pub fn of(policy: Option<TestPolicy>, tested: Option<&TestRecord>, revision: u32) -> Self {
        let Some(policy) = policy else { return Self::None };
        let ended = tested.filter(|tested| tested.revision == revision).map(|tested| tested.state);
        match (policy.on_failure, ended) {
            (_, Some(TestState::Succeeded)) | (TestFailure::Ignore, Some(TestState::Failed)) => Self::None,
            (TestFailure::Fail, Some(TestState::Failed)) => Self::Failed,
            (TestFailure::Fail, None) => Self::Required,
            (TestFailure::Ignore, None) => Self::Optional,
        }
    }
}

/// What is known about the tests of a release. The texts are for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestReport {
    Succeeded(String),
    Failed(String),
    Unknown(String),
}

impl TestReport {
    /// Returns what is known about the tests of a revision. `tested` is the last result. Tests that have failed are reported
    /// until others have run: after a rollback, none run.
    pub fn of(tested: Option<&TestRecord>, revision: u32) -> Self {
        match tested {
            Some(TestRecord { revision: of, state: TestState::Succeeded, message }) if *of == revision => {
                Self::Succeeded(message.clone())
            }
            Some(TestRecord { revision: of, state: TestState::Failed, message }) => {
                Self::Failed(format!("revision {of}: {message}"))
            }
            _ => Self::Unknown(format!("the tests of revision {revision} have not ended")),
        }
    }
}

/// The result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageTest {
    /// Kind, namespace and name, for users, such as `Pod shop/web-test`.
    pub name: String,
    pub passed: bool,
    /// Why it has failed.
    pub message: String,
    /// The end of its log, at most 2 KiB. Empty unless the policy wants it and the test has failed.
    pub log_tail: String,
}

/// Maximum size of what tests have logged in the status, in bytes.
const MAX_LOG: usize = 2 << 10;

/// Returns the result of the tests of a revision for the status.
pub fn test_record(revision: u32, tests: &[PackageTest]) -> TestRecord {
    let failed: Vec<&PackageTest> = tests.iter().filter(|test| !test.passed).collect();
    if failed.is_empty() {
        let message = match tests.len() {
            0 => "the package has no tests".to_owned(),
            _ => String::new(),
        };
        return TestRecord { revision, state: TestState::Succeeded, message };
    }
    let reasons: Vec<String> = failed.iter().map(|test| describe(test)).collect();
    let mut message = reasons.join("; ");
    let mut room = MAX_LOG;
    for PackageTest { name, log_tail, .. } in failed.iter().filter(|test| !test.log_tail.is_empty()) {
        let tail = last_bytes(log_tail.trim_end(), room);
        if tail.is_empty() {
            break;
        }
        room -= tail.len();
        message.push_str("\nlog of ");
        message.push_str(name);
        message.push_str(":\n");
        message.push_str(tail);
    }
    TestRecord { revision, state: TestState::Failed, message }
}

fn describe(test: &PackageTest) -> String {
    let PackageTest { name, message, .. } = test;
    if message.is_empty() { format!("{name} has failed") } else { format!("{name}: {message}") }
}

/// Returns the end of a text, in at most so many bytes.
fn last_bytes(text: &str, limit: usize) -> &str {
    let start = text.len().saturating_sub(limit);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(revision: u32, state: TestState) -> TestRecord {
        TestRecord { revision, state, message: String::new() }
    }

    #[test]
    fn tests_run_once_per_revision() {
        let policy = |on_failure| Some(TestPolicy { on_failure, ..TestPolicy::default() });
        let (fail, ignore) = (policy(TestFailure::Fail), policy(TestFailure::Ignore));
        let [succeeded, failed, old] =
            [record(4, TestState::Succeeded), record(4, TestState::Failed), record(3, TestState::Failed)];
        let rows = [
            (None, None, TestNeed::None),
            (None, Some(&failed), TestNeed::None),
            (fail, None, TestNeed::Required),
            (fail, Some(&old), TestNeed::Required),
            (fail, Some(&succeeded), TestNeed::None),
            (fail, Some(&failed), TestNeed::Failed),
            (ignore, None, TestNeed::Optional),
            (ignore, Some(&old), TestNeed::Optional),
            (ignore, Some(&succeeded), TestNeed::None),
            (ignore, Some(&failed), TestNeed::None),
        ];
        for (policy, tested, expected) in rows {
            assert_eq!(TestNeed::of(policy, tested, 4), expected, "{policy:?} {tested:?}");
        }
    }

    #[test]
    fn failed_tests_are_reported_until_others_have_run() {
        let message = "Pod a/b has failed".to_owned();
        let failed = TestRecord { message, ..record(3, TestState::Failed) };
        let unknown = || TestReport::Unknown("the tests of revision 4 have not ended".to_owned());
        let failure = || TestReport::Failed("revision 3: Pod a/b has failed".to_owned());
        let rows = [
            (None, 4, unknown()),
            (Some(record(3, TestState::Succeeded)), 4, unknown()),
            (Some(record(4, TestState::Succeeded)), 4, TestReport::Succeeded(String::new())),
            (Some(failed.clone()), 3, failure()),
            (Some(failed), 4, failure()),
        ];
        for (tested, revision, expected) in rows {
            assert_eq!(TestReport::of(tested.as_ref(), revision), expected, "{tested:?} {revision}");
        }
    }

    fn test(name: &str, passed: bool, message: &str, log_tail: &str) -> PackageTest {
        let [name, message, log_tail] = [name, message, log_tail].map(str::to_owned);
        PackageTest { name, passed, message, log_tail }
    }

    #[test]
    fn failed_tests_are_named() {
        use TestState::{Failed, Succeeded};
        let rows = [
            (vec![], Succeeded, "the package has no tests"),
            (vec![test("Pod a/b", true, "", "")], Succeeded, ""),
            (
                vec![test("Pod a/b", true, "", ""), test("Pod a/c", false, "exit code 1", "")],
                Failed,
                "Pod a/c: exit code 1",
            ),
            (
                vec![test("Pod a/b", false, "", "no route\n"), test("Pod a/c", false, "timeout", "")],
                Failed,
                "Pod a/b has failed; Pod a/c: timeout\nlog of Pod a/b:\nno route",
            ),
        ];
        for (tests, state, message) in rows {
            let expected = TestRecord { revision: 4, state, message: message.to_owned() };
            assert_eq!(test_record(4, &tests), expected);
        }
    }

    #[test]
    fn logs_are_limited() {
        let long = "ä".repeat(3 << 10);
        let tests = [test("Pod a/b", false, "exit code 1", &long), test("Pod a/c", false, "", &long)];
        let message = test_record(4, &tests).message;
        let bytes = message.matches('ä').count() * 'ä'.len_utf8();
        assert!((MAX_LOG - 2..=MAX_LOG).contains(&bytes), "{bytes}");
    }
}
