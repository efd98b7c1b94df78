//! Waiting until objects are ready, and what happens when they are not.

use std::time::Duration;

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::ConfigMap};

use crate::{
    Ability, Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    order::{Order as _, duration},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "waiting/ready",
        Some(Ability::Wait),
        ready,
        "With wait an operation says what it waits for and ends when that is ready."
    ),
    case!(
        "waiting/not-ready",
        Some(Ability::Wait),
        not_ready,
        "What is not ready in time is NOT_READY, named, and the release failed."
    ),
    case!("waiting/unasked", None, unasked, "Without wait an operation ends when the objects are applied."),
    case!("waiting/jobs", Some(Ability::Wait), jobs, "Jobs are waited for only when asked for."),
    case!("waiting/gone", Some(Ability::Wait), gone, "A removal with wait ends when the objects are gone."),
    case!(
        "waiting/atomic-install",
        Some(Ability::Wait),
        atomic_install,
        "An atomic install that fails leaves nothing."
    ),
    case!(
        "waiting/atomic-upgrade",
        Some(Ability::Wait),
        atomic_upgrade,
        "An atomic upgrade that fails goes back, and does not claim its input."
    ),
    case!(
        "waiting/cleanup",
        Some(Ability::Wait),
        cleanup,
        "A failed upgrade removes what it created when asked to."
    ),
];

const SHORT: Duration = Duration::from_secs(3);

async fn ready(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::deployment())?;
    let request = context.install("web", &package, "replicas: 2").with(|options| options.wait = true);
    let inputs = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let waiting = ended.steps.iter().find(|step| step.kind() == StepKind::Waiting);
    let named = waiting
        .is_some_and(|step| step.objects.iter().any(|one| one.kind == "Deployment" && one.name == "web"));
    ensure!(named, "no step WAITING that names the Deployment: {}", describe(&ended.steps));
    let deployment = context.get::<Deployment>("web").await?;
    let available = deployment.status.and_then(|status| status.available_replicas);
    ensure!(available == Some(2), "the operation ended with {available:?} of 2 replicas available");
    context.settled(ended, &inputs).await.map(drop)
}

async fn not_ready(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::deployment())?;
    let request = context.install("web", &package, "stuck: true").with(|options| {
        options.wait = true;
        options.timeout = duration(SHORT);
    });
    let failure = context.refused(request, FailureCategory::NotReady).await?;
    ensure!(
        failure.message.contains("Deployment"),
        "the message does not name the kind: {}",
        failure.message
    );
    ensure!(failure.message.contains("web"), "the message does not name the object: {}", failure.message);
    let state = failure.state.unwrap_or_default();
    ensure!(state.status() == ReleaseStatus::Failed, "the state is {state:?}");
    let request = context.upgrade("web", &package, "replicas: 1").with(|options| options.wait = true);
    context.applied(request).await.map(drop)
}

async fn unasked(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::deployment())?;
    context.applied(context.install("web", &package, "stuck: true")).await?;
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
        Chart::new("endless").template("job.yaml", job("endless", "      nodeSelector: {no-such: node}\n"));
    let request =
        context.install("endless", &context.pack(&endless)?, "").with(|options| options.wait = true);
    context.applied(request).await?;
    let ending = Chart::new("ending").template("job.yaml", job("ending", ""));
    let request = context.install("ending", &context.pack(&ending)?, "").with(|options| {
        options.wait = true;
        options.wait_for_jobs = true;
    });
    context.applied(request).await?;
    let succeeded = context.get::<Job>("ending").await?.status.and_then(|status| status.succeeded);
    ensure!(succeeded == Some(1), "the operation ended with {succeeded:?} of 1 completed");
    Ok(())
}

async fn gone(context: &Context) -> Result<(), CaseError> {
    let finalized = CONFIG.replace("metadata:\n", "metadata:\n  finalizers: [example.invalid/held]\n");
    let package = context.pack(&Chart::new("held").template("config.yaml", finalized))?;
    context.applied(context.install("web", &package, "")).await?;
    let request = context.removal("web").with(|options| options.wait = true);
    let mut running = context.tool.begin_remove(request).await?;
    running.until(StepKind::Waiting).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    context.get::<ConfigMap>("web").await?;
    let patch = serde_json::json!({"metadata": {"finalizers": null}});
    context.patch::<ConfigMap>("web", &patch).await?;
    running.end().await?.absent()?;
    ensure!(
        context.find::<ConfigMap>("web").await?.is_none(),
        "the removal ended before the object was gone"
    );
    context.agree_absent("web").await
}

async fn atomic_install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::deployment())?;
    let request = context.install("web", &package, "stuck: true").with(|options| {
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
    ensure!(context.find::<Deployment>("web").await?.is_none(), "the Deployment is still there");
    context.agree_absent("web").await
}

async fn atomic_upgrade(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::deployment())?;
    context
        .applied(context.install("web", &package, "replicas: 1").with(|options| options.wait = true))
        .await?;
    let request = context.upgrade("web", &package, "stuck: true").with(|options| {
        options.wait = true;
        options.atomic = true;
        options.timeout = duration(SHORT);
    });
    let inputs = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    ensure!(
        ended.steps.iter().any(|step| step.kind() == StepKind::RollingBack),
        "no step ROLLING_BACK in {steps}"
    );
    context.failed(ended, FailureCategory::NotReady).await?;
    let state = context.observed("web").await?;
    ensure!(state.revision == 3 && state.status() == ReleaseStatus::Deployed, "after going back: {state:?}");
    ensure!(state.input_digest != inputs, "the revision gone back to claims the input that failed");
    let spec = context.get::<Deployment>("web").await?.spec.and_then(|spec| spec.template.spec);
    let selector = spec.and_then(|spec| spec.node_selector);
    ensure!(selector.is_none(), "the Deployment still has the node selector {selector:?}");
    context.agree(&state).await
}

async fn cleanup(context: &Context) -> Result<(), CaseError> {
    let old = context.pack(&Chart::config())?;
    let new = context.pack(&Chart::config().template("deployment.yaml", crate::chart::DEPLOYMENT))?;
    context.applied(context.install("web", &old, "")).await?;
    let request = context.upgrade("web", &new, "stuck: true").with(|options| {
        options.wait = true;
        options.cleanup_on_fail = true;
        options.timeout = duration(SHORT);
    });
    context.refused(request, FailureCategory::NotReady).await?;
    ensure!(
        context.find::<Deployment>("web").await?.is_none(),
        "what the failed upgrade created is still there"
    );
    context.get::<ConfigMap>("web").await.map(drop)
}
