//! Waiting until objects are ready, and the failure if they are not.

use std::time::Duration;

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::ConfigMap};
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    package::{CONFIG, TestPackage},
    request::{RequestExt as _, duration},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "waiting/ready",
        [Wait],
        ready,
        "With wait an operation reports the objects that it waits for and ends when they are ready."
    ),
    case!(
        "waiting/not-ready",
        [Wait],
        not_ready,
        "An object that is not ready in time is NOT_READY, it is named, and the release is failed."
    ),
    case!(
        "waiting/unrequested",
        [],
        unrequested,
        "Without wait an operation ends when the objects are applied."
    ),
    case!("waiting/jobs", [Wait], jobs, "An operation waits for Jobs only on request."),
    case!("waiting/gone", [Wait], gone, "A removal with wait ends when the objects are deleted."),
    case!("waiting/atomic-install", [Wait], atomic_install, "An atomic install that fails leaves nothing."),
    case!(
        "waiting/atomic-upgrade",
        [Wait],
        atomic_upgrade,
        "An atomic upgrade that fails is rolled back, and the revision does not have its input digest."
    ),
    case!(
        "waiting/cleanup",
        [Wait],
        cleanup,
        "A failed upgrade deletes the objects that it created on request."
    ),
];

const SHORT: Duration = Duration::from_secs(3);

async fn ready(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::deployment(2)).await?;
    let request = context.install("web", &package, json!({})).with(|options| options.wait = true);
    let digest = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let waiting = ended.steps.iter().find(|step| step.kind() == StepKind::Waiting);
    let named = waiting
        .is_some_and(|step| step.objects.iter().any(|one| one.kind == "Deployment" && one.name == "web"));
    ensure!(named, "no step WAITING that names the Deployment: {}", describe(&ended.steps));
    let deployment = context.get::<Deployment>("web").await?;
    let available = deployment.status.and_then(|status| status.available_replicas);
    ensure!(available == Some(2), "the operation ended with {available:?} of 2 replicas available");
    context.check_applied(ended, &digest).await.map(drop)
}

async fn not_ready(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::stuck_deployment()).await?;
    let request = context.install("web", &package, json!({})).with(|options| {
        options.wait = true;
        options.timeout = duration(SHORT);
    });
    let failure = context.apply_fails(request, FailureCategory::NotReady).await?;
    ensure!(
        failure.message.contains("Deployment"),
        "the message does not name the kind: {}",
        failure.message
    );
    ensure!(failure.message.contains("web"), "the message does not name the object: {}", failure.message);
    let state = failure.state.unwrap_or_default();
    ensure!(state.status() == ReleaseStatus::Failed, "the state is {state:?}");
    let package = context.pack(&TestPackage::deployment(1)).await?;
    let request = context.upgrade("web", &package, json!({})).with(|options| options.wait = true);
    context.apply(request).await.map(drop)
}

async fn unrequested(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::stuck_deployment()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let deployment = context.get::<Deployment>("web").await?;
    let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or_default();
    ensure!(ready == 0, "the Deployment cannot have {ready} ready replicas");
    Ok(())
}

async fn jobs(context: &Context) -> Result<(), CaseError> {
    let job = |name: &str, rest: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n{rest}      \
             restartPolicy: Never\n      containers: [{{name: main, image: 'example.invalid/job:1'}}]\n"
        )
    };
    let endless =
        TestPackage::new("endless").manifest(job("endless", "      nodeSelector: {no-such: node}\n"));
    let request = context.install("endless", &context.pack(&endless).await?, json!({}));
    context.apply(request.with(|options| options.wait = true)).await?;
    let ending = TestPackage::new("ending").manifest(job("ending", ""));
    let request = context.install("ending", &context.pack(&ending).await?, json!({})).with(|options| {
        options.wait = true;
        options.wait_for_jobs = true;
    });
    context.apply(request).await?;
    let succeeded = context.get::<Job>("ending").await?.status.and_then(|status| status.succeeded);
    ensure!(succeeded == Some(1), "the operation ended with {succeeded:?} of 1 completed");
    Ok(())
}

async fn gone(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::finalized()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let request = context.removal("web").with(|options| options.wait = true);
    let mut running = context.tool.begin_remove(request).await?;
    running.until_step(StepKind::Waiting).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    context.get::<ConfigMap>("web").await?;
    let patch = json!({"metadata": {"finalizers": null}});
    context.patch::<ConfigMap>("web", &patch).await?;
    running.end().await?.absent()?;
    ensure!(
        context.find::<ConfigMap>("web").await?.is_none(),
        "the removal ended before the object was deleted"
    );
    context.agree_absent("web").await
}

async fn atomic_install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::stuck_deployment()).await?;
    let request = context.install("web", &package, json!({})).with(|options| {
        options.wait = true;
        options.atomic = true;
        options.timeout = duration(SHORT);
    });
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    ensure!(
        ended.steps.iter().any(|step| step.kind() == StepKind::RollingBack),
        "no step ROLLING_BACK in {steps}"
    );
    let failure = ended.failure(FailureCategory::NotReady)?;
    ensure!(failure.state.is_none(), "nothing is left, reported is {:?}", failure.state);
    ensure!(context.find::<Deployment>("web").await?.is_none(), "the Deployment still exists");
    context.agree_absent("web").await
}

async fn atomic_upgrade(context: &Context) -> Result<(), CaseError> {
    let ready = context.pack(&TestPackage::deployment(1)).await?;
    let stuck = context.pack(&TestPackage::stuck_deployment()).await?;
    context.apply(context.install("web", &ready, json!({})).with(|options| options.wait = true)).await?;
    let request = context.upgrade("web", &stuck, json!({})).with(|options| {
        options.wait = true;
        options.atomic = true;
        options.timeout = duration(SHORT);
    });
    let digest = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    ensure!(
        ended.steps.iter().any(|step| step.kind() == StepKind::RollingBack),
        "no step ROLLING_BACK in {steps}"
    );
    context.check_failed(ended, FailureCategory::NotReady).await?;
    let state = context.observe_existing("web").await?;
    ensure!(
        state.revision == 3 && state.status() == ReleaseStatus::Deployed,
        "after the rollback: {state:?}"
    );
    ensure!(state.input_digest != digest, "the rollback's revision has the input digest that failed");
    let spec = context.get::<Deployment>("web").await?.spec.and_then(|spec| spec.template.spec);
    let selector = spec.and_then(|spec| spec.node_selector);
    ensure!(selector.is_none(), "the Deployment still has the node selector {selector:?}");
    context.agree(&state).await
}

async fn cleanup(context: &Context) -> Result<(), CaseError> {
    let old = context.pack(&TestPackage::config()).await?;
    let new = context.pack(&TestPackage::stuck_deployment().manifest(CONFIG)).await?;
    context.apply(context.install("web", &old, json!({}))).await?;
    let request = context.upgrade("web", &new, json!({})).with(|options| {
        options.wait = true;
        options.cleanup_on_fail = true;
        options.timeout = duration(SHORT);
    });
    context.apply_fails(request, FailureCategory::NotReady).await?;
    ensure!(
        context.find::<Deployment>("web").await?.is_none(),
        "an object that the failed upgrade created still exists"
    );
    context.get::<ConfigMap>("web").await.map(drop)
}
