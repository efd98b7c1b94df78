//! Helm tests.

use std::time::Duration;

use chandler_tool::generated::tool::{FailureCategory, ReleaseState, TestRequest, TestResult};
use k8s_openapi::api::batch::v1::Job;

use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    request::duration,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/tests/passing",
        [HelmRecords, Test],
        passing,
        "Tests run in the order of their weights, again if they are requested again, and create no revision."
    ),
    case!(
        "helm/tests/failing",
        [HelmRecords, Test],
        failing,
        "A failed test is a result that names it, the tests after it do not run, and the release stays deployed."
    ),
    case!(
        "helm/tests/endless",
        [HelmRecords, Test],
        endless,
        "A test that does not end within the timeout has failed."
    ),
    case!("helm/tests/none", [HelmRecords, Test], none, "A release without tests has no results."),
    case!(
        "helm/tests/separate",
        [HelmRecords, Test],
        separate,
        "Apply and Remove do not run tests, and a test runs no other hooks."
    ),
    case!(
        "helm/tests/revision",
        [HelmRecords, Test],
        revision,
        "Tests of a revision that is not the newest, or is not deployed, do not run: CONFLICT."
    ),
    case!(
        "helm/tests/rollback",
        [HelmRecords, Test, Rollback],
        rollback,
        "A deployed revision can be rolled back after one of its tests has failed, and not before."
    ),
];

/// Installs a chart and returns its release.
async fn install(context: &Context, chart: &Chart) -> Result<ReleaseState, CaseError> {
    let package = context.pack_chart(chart)?;
    context.apply(context.install("web", &package, "size: 1")).await
}

async fn run(context: &Context, request: TestRequest) -> Result<Vec<TestResult>, CaseError> {
    context.tool.test(request).await?.tests()
}

/// Checks that the tests have created no revision and that the release is deployed.
async fn is_unchanged(context: &Context, deployed: &ReleaseState) -> Result<(), CaseError> {
    context.agree(deployed).await?;
    let records = context.records("web").await?;
    ensure!(records.len() == 1, "the records are {records:?}");
    Ok(())
}

fn test(name: &str, end: HookEnd) -> Hook<'_> {
    Hook::new(name, "test", end)
}

async fn passing(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config()
        .hook(&test("b", HookEnd::Succeeds).weight(5))
        .hook(&test("a", HookEnd::Succeeds).weight(6));
    let deployed = install(context, &chart).await?;
    let mut uids = Vec::new();
    for round in ["first", "second"] {
        let results = run(context, context.tests("web", 1)).await?;
        let namespace = &context.namespace;
        let expected = [format!("Job {namespace}/web-b"), format!("Job {namespace}/web-a")];
        let names: Vec<_> = results.iter().map(|result| result.name.clone()).collect();
        ensure!(names == expected, "the {round} run returned {results:?}");
        ensure!(results.iter().all(|result| result.passed), "the {round} run returned {results:?}");
        is_unchanged(context, &deployed).await?;
        uids.push(context.get::<Job>("web-a").await?.metadata.uid);
    }
    ensure!(uids[0] != uids[1], "the second run has not run the test again");
    context.remove(context.removal("web")).await
}

async fn failing(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config()
        .hook(&test("good", HookEnd::Succeeds).weight(-1))
        .hook(&test("bad", HookEnd::Fails))
        .hook(&test("later", HookEnd::Succeeds).weight(1));
    let deployed = install(context, &chart).await?;
    for logs in [false, true] {
        let request = TestRequest { logs, ..context.tests("web", 1) };
        let results = run(context, request).await?;
        let [good, bad] = &results[..] else {
            return Err(CaseError::Violation(format!("the results are {results:?}")));
        };
        ensure!(good.passed && !bad.passed, "the results are {results:?}");
        ensure!(bad.name.ends_with("/web-bad") && !bad.message.is_empty(), "the failed test is {bad:?}");
        ensure!(bad.log_tail.len() <= 2048 && (logs || bad.log_tail.is_empty()), "the log is {bad:?}");
        ensure!(context.find::<Job>("web-later").await?.is_none(), "a test after the failed one has run");
        is_unchanged(context, &deployed).await?;
    }
    // An upgrade is not kept from anything by a failed test.
    let package = context.pack_chart(&chart.version("2.0.0"))?;
    context.apply(context.upgrade("web", &package, "size: 2")).await.map(drop)
}

async fn endless(context: &Context) -> Result<(), CaseError> {
    let deployed = install(context, &Chart::config().hook(&test("held", HookEnd::Never))).await?;
    let request = TestRequest { timeout: duration(Duration::from_secs(2)), ..context.tests("web", 1) };
    let results = run(context, request).await?;
    ensure!(
        matches!(&results[..], [held] if !held.passed && held.name.ends_with("/web-held")),
        "the results are {results:?}"
    );
    is_unchanged(context, &deployed).await
}

async fn none(context: &Context) -> Result<(), CaseError> {
    let deployed = install(context, &Chart::config()).await?;
    let results = run(context, context.tests("web", 1)).await?;
    ensure!(results.is_empty(), "the results are {results:?}");
    is_unchanged(context, &deployed).await
}

async fn separate(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().hook(&test("check", HookEnd::Fails)).hook(&Hook::new(
        "setup",
        "post-install,post-upgrade",
        HookEnd::Succeeds,
    ));
    install(context, &chart).await?;
    ensure!(context.find::<Job>("web-check").await?.is_none(), "Apply has run a test");
    let before = context.get::<Job>("web-setup").await?.metadata.uid;
    run(context, context.tests("web", 1)).await?;
    let after = context.get::<Job>("web-setup").await?.metadata.uid;
    ensure!(before == after, "the tests have run another hook");
    context.remove(context.removal("web")).await
}

async fn revision(context: &Context) -> Result<(), CaseError> {
    let absent = context.tool.test(context.tests("web", 1)).await?;
    absent.failure(FailureCategory::Conflict)?;
    let chart = Chart::config().hook(&test("check", HookEnd::Succeeds));
    let deployed = install(context, &chart).await?;
    let other = context.tool.test(context.tests("web", 2)).await?;
    context.check_failed(other, FailureCategory::Conflict).await?;
    ensure!(context.find::<Job>("web-check").await?.is_none(), "the test of another revision has run");
    context.agree(&deployed).await
}

async fn rollback(context: &Context) -> Result<(), CaseError> {
    let good = Chart::config().hook(&test("check", HookEnd::Succeeds));
    let old = install(context, &good).await?;
    let bad = Chart::config().version("2.0.0").hook(&test("check", HookEnd::Fails));
    let package = context.pack_chart(&bad)?;
    let new = context.apply(context.upgrade("web", &package, "size: 2")).await?;
    let request = || context.rollback("web", &old.input_digest, &new.input_digest);
    let before = context.tool.rollback(request()).await?;
    context.check_failed(before, FailureCategory::Conflict).await?;

    let results = run(context, context.tests("web", new.revision)).await?;
    ensure!(results.iter().any(|result| !result.passed), "the results are {results:?}");
    let state = context.tool.rollback(request()).await?.state()?;
    ensure!(
        (state.revision, &state.input_digest, &state.rolled_back_digest)
            == (3, &old.input_digest, &new.input_digest),
        "after the rollback: {state:?}"
    );
    context.agree(&state).await?;
    let results = run(context, context.tests("web", state.revision)).await?;
    ensure!(results.iter().all(|result| result.passed), "the restored revision has {results:?}");
    Ok(())
}
