//! Rollbacks to an earlier revision.

use chandler_tool::generated::tool::{
    ApplyRequest, FailureCategory, ReleaseState, ReleaseStatus, RollbackRequest, StepKind,
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{cancel::OwnUser, lifecycle::written};
use crate::{
    Case, CaseError,
    context::Context,
    hold::Hold,
    package::{CONFIG, RELEASE, TestPackage},
    request::{RequestExt as _, recovering},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "rollback/restores",
        [Rollback],
        restores,
        "A rollback restores the objects of the previous revision, and the new record names the inputs that failed."
    ),
    case!(
        "rollback/again",
        [Rollback],
        again,
        "A rollback that is requested again changes nothing, and an upgrade after it forgets what was rolled back."
    ),
    case!(
        "rollback/revision",
        [Rollback],
        revision,
        "A rollback restores a given revision, but none that failed or has other inputs: CONFLICT."
    ),
    case!(
        "rollback/first-failed",
        [Rollback],
        first_failed,
        "A release whose first revision failed, or that does not exist, cannot be rolled back: CONFLICT."
    ),
    case!(
        "rollback/not-failed",
        [Rollback],
        not_failed,
        "Inputs that are deployed are not rolled back: CONFLICT."
    ),
    case!(
        "rollback/requested",
        [Rollback],
        requested,
        "With roll_back_deployed, inputs that are deployed are rolled back, once."
    ),
    case!(
        "rollback/other-client",
        [Rollback],
        other_client,
        "A revision that another client has deployed meanwhile is not rolled back: CONFLICT."
    ),
    case!(
        "rollback/unreached",
        [Rollback],
        unreached,
        "If the inputs failed before they created a revision, the deployed revision only names them."
    ),
    case!(
        "rollback/crash",
        [Rollback],
        crash,
        "An interrupted rollback is pending-rollback, and a rollback with recover succeeds."
    ),
    case!(
        "rollback/crash-apply",
        [Rollback],
        crash_apply,
        "An Apply with recover succeeds after an interrupted rollback."
    ),
    case!(
        "rollback/cancel",
        [Rollback],
        cancel,
        "After the response to Cancel no request of a rollback follows, and the next rollback succeeds."
    ),
];

/// An object that the API server rejects.
const WRONG: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\n\
                     spec: {ports: [{port: 80}], selektor: {a: b}}\n";

/// A release whose upgrade failed: revision 1 is deployed with `old`, and revision 2 failed with `new`.
pub(in crate::topics) struct Failed {
    old: ReleaseState,
    new: String,
}

impl Failed {
    /// Installs a package, and upgrades it with other values, another object and one that is rejected.
    pub(in crate::topics) async fn create(
        context: &Context,
        package: TestPackage,
    ) -> Result<Self, CaseError> {
        let good = context.pack(&package).await?;
        let old = context.apply(context.install("web", &good, json!({"size": 1}))).await?;
        let extra = CONFIG.replace(RELEASE, "extra");
        let bad = context.pack(&package.version("2.0.0").manifest(extra).manifest(WRONG)).await?;
        let request = context.upgrade("web", &bad, json!({"size": 2}));
        let new = request.input_digest.clone();
        context.apply_fails(request, FailureCategory::Rejected).await?;
        let state = context.observe_existing("web").await?;
        ensure!(
            state.revision == 2 && state.status() == ReleaseStatus::Failed,
            "after the failed upgrade: {state:?}"
        );
        Ok(Self { old, new })
    }

    pub(in crate::topics) fn rollback(&self, context: &Context) -> RollbackRequest {
        context.rollback("web", &self.old.input_digest, &self.new)
    }

    /// Checks that the rollback created this revision, and that the objects are those of revision 1.
    async fn is_restored(
        &self,
        context: &Context,
        state: &ReleaseState,
        revision: u32,
    ) -> Result<(), CaseError> {
        ensure!(
            state.revision == revision && state.status() == ReleaseStatus::Deployed,
            "expected revision {revision} deployed, got {state:?}"
        );
        ensure!(
            state.input_digest == self.old.input_digest && state.rolled_back_digest == self.new,
            "the revision has the wrong digests: {state:?}"
        );
        ensure!(
            state.package_version == self.old.package_version
                && state.values_digest == self.old.values_digest,
            "the revision has another package or other values: {state:?}"
        );
        context.agree(state).await?;
        let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
        ensure!(data.values().any(|text| text.contains(r#""size":1"#)), "the object has {data:?}");
        ensure!(
            context.find::<ConfigMap>("extra").await?.is_none(),
            "an object of the failed upgrade still exists"
        );
        Ok(())
    }
}

fn recover(request: RollbackRequest) -> RollbackRequest {
    RollbackRequest { recover: true, ..request }
}

async fn restores(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::config()).await?;
    let ended = context.tool.rollback(failed.rollback(context)).await?;
    let steps = describe(&ended.steps);
    ensure!(
        ended.steps.iter().any(|step| step.kind() == StepKind::RollingBack),
        "no step ROLLING_BACK in {steps}"
    );
    ensure!(!ended.unchanged, "the result says that no revision was created");
    failed.is_restored(context, &ended.state()?, 3).await?;
    let records: Vec<_> = context
        .records("web")
        .await?
        .into_iter()
        .map(|record| (record.revision, record.status, record.mark.map(|mark| mark.revision)))
        .collect();
    let expected = [(3, "deployed", Some(3)), (2, "failed", Some(2)), (1, "superseded", Some(1))];
    let expected = expected.map(|(revision, status, mark)| (revision, status.to_owned(), mark));
    ensure!(records == expected, "the records are {records:?}");
    context.remove(context.removal("web")).await
}

async fn again(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::config()).await?;
    let deployed = context.tool.rollback(failed.rollback(context)).await?.state()?;
    let before = written(context).await?;
    let ended = context.tool.rollback(failed.rollback(context)).await?;
    ensure!(ended.unchanged, "the result does not say that nothing was changed");
    let state = ended.state()?;
    ensure!(state == deployed, "the result is {state:?}, deployed is {deployed:?}");
    let after = written(context).await?;
    ensure!(before == after, "(name, resource version) were {before:?}, now {after:?}");

    let package = context.pack(&TestPackage::config().version("3.0.0")).await?;
    let state = context.apply(context.upgrade("web", &package, json!({"size": 3}))).await?;
    ensure!(state.revision == 4 && state.rolled_back_digest.is_empty(), "after an upgrade: {state:?}");
    Ok(())
}

async fn revision(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let first = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.apply(context.upgrade("web", &package, json!({"size": 9}))).await?;
    let bad = context.pack(&TestPackage::config().manifest(WRONG)).await?;
    let request = context.upgrade("web", &bad, json!({}));
    let new = request.input_digest.clone();
    context.apply_fails(request, FailureCategory::Rejected).await?;

    let to = |revision| RollbackRequest { revision, ..context.rollback("web", &first.input_digest, &new) };
    for (what, request) in [("other inputs", to(2)), ("the newest", to(3)), ("a missing one", to(7))] {
        let ended = context.tool.rollback(request).await?;
        let failed = context.check_failed(ended, FailureCategory::Conflict).await;
        failed.map_err(|error| error.within(what))?;
    }
    let state = context.tool.rollback(to(1)).await?.state()?;
    Failed { old: first, new }.is_restored(context, &state, 4).await
}

async fn first_failed(context: &Context) -> Result<(), CaseError> {
    let request = context.rollback("web", &"a".repeat(40), &"b".repeat(40));
    context.tool.rollback(request).await?.failure(FailureCategory::Conflict)?;
    context.agree_absent("web").await?;

    let bad = context.pack(&TestPackage::config().manifest(WRONG)).await?;
    let install = context.install("web", &bad, json!({}));
    let failed = install.input_digest.clone();
    context.apply_fails(install, FailureCategory::Rejected).await?;
    for restored in [String::new(), "a".repeat(40)] {
        let ended = context.tool.rollback(context.rollback("web", &restored, &failed)).await?;
        context.check_failed(ended, FailureCategory::Conflict).await?;
    }
    let records = context.records("web").await?;
    let [record] = &records[..] else {
        return Err(CaseError::Violation(format!("the records are {records:?}")));
    };
    ensure!(record.revision == 1 && record.status == "failed", "the record is {record:?}");
    Ok(())
}

async fn not_failed(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let old = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let new = context.apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
    let request = context.rollback("web", &old.input_digest, &new.input_digest);
    context.tool.rollback(request).await?.failure(FailureCategory::Conflict)?;
    context.agree(&new).await
}

async fn requested(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let extra = CONFIG.replace(RELEASE, "extra");
    let newer = context.pack(&TestPackage::config().version("2.0.0").manifest(extra)).await?;
    let old = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let new = context.apply(context.upgrade("web", &newer, json!({"size": 2}))).await?.input_digest;
    let deployed = Failed { old, new };
    let request = || RollbackRequest { roll_back_deployed: true, ..deployed.rollback(context) };
    let state = context.tool.rollback(request()).await?.state()?;
    deployed.is_restored(context, &state, 3).await?;
    let ended = context.tool.rollback(request()).await?;
    ensure!(ended.unchanged, "the rollback was repeated");
    context.agree(&state).await
}

async fn other_client(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::config()).await?;
    let package = context.pack(&TestPackage::config()).await?;
    // A revision without an input digest is that of another client.
    let request =
        ApplyRequest { input_digest: String::new(), ..context.upgrade("web", &package, json!({"size": 3})) };
    let deployed = context.apply(request).await?;
    context.tool.rollback(failed.rollback(context)).await?.failure(FailureCategory::Conflict)?;
    context.agree(&deployed).await
}

async fn unreached(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let old = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let failed = "b".repeat(40);
    for round in ["first", "second"] {
        let ended = context.tool.rollback(context.rollback("web", &old.input_digest, &failed)).await?;
        ensure!(ended.unchanged, "the {round} rollback created a revision");
        let state = ended.state()?;
        let expected = ReleaseState { rolled_back_digest: failed.clone(), ..old.clone() };
        ensure!(state == expected, "the {round} rollback returned {state:?}, expected {expected:?}");
        context.agree(&state).await?;
    }
    Ok(())
}

/// Kills the process of a rollback while it applies the objects.
async fn interrupt(context: &Context, failed: &Failed) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let hold = Hold::start(context).await?;
    let running = tool.begin_rollback(failed.rollback(context)).await?;
    hold.until_held(1).await?;
    tool.supervisor().kill();
    running.interrupted().await?;
    hold.release().await?;
    let state = context.observe_existing("web").await?;
    ensure!(
        state.status() == ReleaseStatus::PendingRollback,
        "the crash left {}",
        state.status().as_str_name()
    );
    ensure!(
        state.input_digest == failed.old.input_digest && state.rolled_back_digest == failed.new,
        "the pending revision has the wrong digests: {state:?}"
    );
    context.agree(&state).await
}

async fn crash(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::held()).await?;
    interrupt(context, &failed).await?;
    let ended = context.tool.rollback(failed.rollback(context)).await?;
    let without = context.check_failed(ended, FailureCategory::Conflict).await;
    without.map_err(|error| error.within("without recover"))?;
    let state = context.tool.rollback(recover(failed.rollback(context))).await?.state()?;
    failed.is_restored(context, &state, 4).await
}

async fn crash_apply(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::held()).await?;
    interrupt(context, &failed).await?;
    let package = context.pack(&TestPackage::config().version("3.0.0")).await?;
    let upgrade = || -> ApplyRequest { context.upgrade("web", &package, json!({"size": 3})) };
    context.apply_fails(upgrade(), FailureCategory::Conflict).await?;
    let state = context.apply(recovering(upgrade())).await?;
    ensure!(state.revision == 4 && state.rolled_back_digest.is_empty(), "after recovering: {state:?}");
    Ok(())
}

async fn cancel(context: &Context) -> Result<(), CaseError> {
    let failed = Failed::create(context, TestPackage::held()).await?;
    let mut user = OwnUser::create(context).await?;
    let hold = Hold::start(context).await?;
    let request = failed.rollback(context).on(user.target.clone());
    let id = request.operation_id.clone();
    let running = user.tool.begin_rollback(request).await?;
    hold.until_held(1).await?;
    user.cancel(context, running, &id).await?;
    hold.release().await?;
    let state = context.tool.rollback(recover(failed.rollback(context))).await?.state()?;
    failed.is_restored(context, &state, 4).await
}
