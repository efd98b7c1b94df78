//! The tests of a package, which run after each install and upgrade.

use chandler_api::{extensions::TestFailure, status::TestState};
use chandler_core::{
    backoff,
    failure::{Category, Failure},
    release::{Desired, PackageTest, ReleaseKind, TestNeed, TestReport, test_record},
};
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;

use super::{Reconciler, View};

impl<R> Reconciler<R>
where
    R: ReleaseKind + kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Returns whether the tests of the newest revision have to run now.
    pub(super) fn test_need(&self, view: &View) -> TestNeed {
        let policy = self.placement.policy.effective().test.filter(|_| !view.lacks_test);
        let Some(revision) = self.status.revision else { return TestNeed::None };
        match TestNeed::of(policy, self.status.tested.as_ref(), revision) {
            TestNeed::Optional if self.test_retry_at().is_some_and(|at| at > self.now) => TestNeed::None,
            need => need,
        }
    }

    /// Returns when tests are tried again that could not run, and that the release is ready without.
    pub(super) fn test_retry_at(&self) -> Option<Timestamp> {
        let (count, at) = self.state.untested?;
        at.checked_add(backoff::delay(Category::Internal, count, &self.uid)).ok()
    }

    /// Returns what is known about the tests. `None` means that the policy does not want any.
    pub(super) fn test_report(&self, view: &View) -> Option<TestReport> {
        let policy = &self.placement.policy;
        let is_wanted =
            policy.effective().test.is_some() || policy.missing().is_some() && self.status.tested.is_some();
        let revision = self.status.revision.filter(|_| is_wanted && !self.deleting())?;
        Some(if view.lacks_test {
            let message = "the package tool cannot run tests; remove `test` from the policy";
            TestReport::Unknown(message.to_owned())
        } else {
            TestReport::of(self.status.tested.as_ref(), revision)
        })
    }

    /// Takes in how the tests of a revision have ended.
    pub(super) fn take_tested(
        &mut self,
        desired: &Desired,
        key: String,
        revision: u32,
        tests: &[PackageTest],
    ) {
        let record = test_record(revision, tests);
        self.state.untested = None;
        if record.state == TestState::Failed {
            // Without the logs of the tests.
            let reasons = record.message.lines().next().unwrap_or_default();
            let failure = Failure::new(
                Category::NotReady,
                format!("tests of release {} have failed: {reasons}", desired.release),
            );
            self.publish_warning("TestsFailed", &desired.failure_note(&failure));
            if self.fails_with_tests() {
                self.remember_failure(key, &failure);
            }
        }
        self.status.tested = Some(record);
    }

    /// Takes in that the tests could not run.
    pub(super) fn take_untested(&mut self, desired: &Desired, key: String, failure: &Failure) {
        if self.fails_with_tests() {
            self.note_failure(desired, key, failure);
        } else {
            let count = self.state.untested.map_or(1, |(count, _)| count.saturating_add(1));
            self.state.untested = Some((count, Timestamp::now()));
        }
    }

    /// Returns whether a failed test is a failure of the release.
    fn fails_with_tests(&self) -> bool {
        let test = self.placement.policy.effective().test;
        test.is_some_and(|test| test.on_failure == TestFailure::Fail)
    }
}
