//! The declared records, from which Chandler reads the releases without calling the tool.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chandler_core::digest::{InputDigest, InputMark};
use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus};
use futures::StreamExt as _;
use kube::api::{ListParams, WatchParams};
use serde_json::json;

use crate::{
    Case, CaseError,
    agreement::status_name,
    context::Context,
    hold::Hold,
    package::{CONFIG, RELEASE, TestPackage},
    records::Record,
    tool::Tool,
};

pub const CASES: &[Case] = &[
    case!(
        "records/watched",
        [],
        watched,
        "A watch of the records shows an operation from its pending revision to its end."
    ),
    case!(
        "records/pending",
        [],
        pending,
        "While an operation runs, its revision is recorded as pending-install, pending-upgrade or uninstalling."
    ),
    case!(
        "records/history",
        [],
        history,
        "Every revision has a record, and Observe's history shows the same revisions."
    ),
    case!(
        "records/overtaken",
        [],
        overtaken,
        "An operation does not overwrite a record that another client has changed: it is a CONFLICT."
    ),
    case!("records/failed", [], failed, "A revision whose operation failed is recorded as failed."),
    case!("records/uninstalled", [], uninstalled, "A removed release with kept history is recorded so."),
    case!("records/separate", [], separate, "Releases with similar names have separate records."),
    case!("records/time", [], time, "A record's time label, if declared, is the time of the last change."),
    case!(
        "records/secret",
        [],
        secret,
        "A record shows no values, unless it is a Secret that contains them."
    ),
];

/// How long a watch may take to show what has happened.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);

async fn watched(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let (api, selector) = (context.record_api()?, context.record_selector("web")?);
    let list = api.list_metadata(&ListParams::default().labels(&selector)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let events = api.watch_metadata(&WatchParams::default().labels(&selector), &version).await?;

    let install = context.install("web", &package, json!({"size": 1}));
    let upgrade = context.upgrade("web", &package, json!({"size": 2}));
    let digests = [install.input_digest.clone(), upgrade.input_digest.clone()];
    context.apply(install).await?;
    context.apply(upgrade).await?;
    context.remove(context.removal("web")).await?;

    let mut seen: Vec<Record> = Vec::new();
    let mut events = Box::pin(events);
    while let Ok(Some(event)) = tokio::time::timeout(WATCH_TIMEOUT, events.next()).await {
        let event = event?;
        seen.extend(context.watched("web", &event)?);
        if matches!(event, kube::core::WatchEvent::Deleted(_)) && context.records("web").await?.is_empty() {
            break;
        }
    }
    for (revision, (pending, digest)) in (1..).zip(["pending-install", "pending-upgrade"].iter().zip(digests))
    {
        let of: Vec<_> = seen.iter().filter(|record| record.revision == revision).collect();
        let first = of.first();
        ensure!(
            first.is_some_and(|first| first.status == *pending && first.input_digest() == digest),
            "the first event of revision {revision} shows {first:?}, expected is {pending} with {digest}"
        );
        ensure!(
            of.iter().any(|record| record.status == "deployed"),
            "no event shows revision {revision} as deployed: {of:?}"
        );
    }
    Ok(())
}

/// Checks the newest record, and that Observe returns the same.
async fn shows(context: &Context, status: ReleaseStatus, digest: &str) -> Result<(), CaseError> {
    let (record, state) = (context.newest_record("web").await?, context.observe_existing("web").await?);
    ensure!(
        record.status == status_name(status) && record.input_digest() == digest,
        "the operation runs, and its record is {record:?}, expected is {} with {digest}",
        status_name(status)
    );
    context.agree(&state).await
}

async fn stop(tool: &Tool, id: &str) -> Result<(), CaseError> {
    tool.cancel(id).await.map(drop)
}

async fn pending(context: &Context) -> Result<(), CaseError> {
    let (tool, slow) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let free = context.pack(&TestPackage::config()).await?;
    let hold = Hold::start(context).await?;
    let request = context.install("web", &slow, json!({}));
    let (id, digest) = (request.operation_id.clone(), request.input_digest.clone());
    let running = tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    shows(context, ReleaseStatus::PendingInstall, &digest).await?;
    stop(&tool, &id).await?;
    drop(running);
    hold.release().await?;
    context.remove(context.removal("web")).await?;

    context.apply(context.install("web", &free, json!({}))).await?;
    let hold = Hold::start(context).await?;
    let request = context.upgrade("web", &slow, json!({}));
    let (id, digest) = (request.operation_id.clone(), request.input_digest.clone());
    let running = tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    shows(context, ReleaseStatus::PendingUpgrade, &digest).await?;
    stop(&tool, &id).await?;
    drop(running);
    hold.release().await?;
    context.remove(context.removal("web")).await?;

    let request = context.install("web", &slow, json!({}));
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    let hold = Hold::start(context).await?;
    let removal = context.removal("web");
    let id = removal.operation_id.clone();
    let running = tool.begin_remove(removal).await?;
    hold.until_held(1).await?;
    shows(context, ReleaseStatus::Uninstalling, &digest).await?;
    stop(&tool, &id).await?;
    drop(running);
    hold.release().await?;
    context.remove(context.removal("web")).await
}

async fn overtaken(context: &Context) -> Result<(), CaseError> {
    let (tool, slow) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let hold = Hold::start(context).await?;
    let running = tool.begin_apply(context.install("web", &slow, json!({}))).await?;
    hold.until_held(1).await?;
    let other = context.upgrade("web", &slow, json!({"size": 2})).input_digest;
    let digest = InputDigest::parse(&other).ok_or_else(|| CaseError::Host("a wrong digest".into()))?;
    context.set_mark("web", 1, &InputMark { digest, revision: 1 }).await?;
    hold.release().await?;
    running.end().await?.failure(FailureCategory::Conflict)?;
    shows(context, ReleaseStatus::PendingInstall, &other).await
}

/// A package with an object that the API server rejects.
fn rejected() -> TestPackage {
    TestPackage::config()
        .version("2.0.0")
        .manifest("apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: -1}]}\n")
}

async fn history(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
    let request = context.upgrade("web", &context.pack(&rejected()).await?, json!({"size": 3}));
    context.apply_fails(request, FailureCategory::Rejected).await?;
    context.apply(context.upgrade("web", &package, json!({"size": 4}))).await?;

    let records = context.records("web").await?;
    let recorded: Vec<_> = records.iter().map(|record| (record.revision, record.status.clone())).collect();
    let observed = context.tool.observe(context.target(), context.release("web"), 100).await?;
    let history = observed.ok().flatten().unwrap_or_default().history;
    let returned: Vec<_> = history.iter().map(|past| (past.revision, status_name(past.status()))).collect();
    ensure!(recorded == returned, "the records are {recorded:?}, Observe returns {returned:?}");
    ensure!(
        recorded.first() == Some(&(4, "deployed".to_owned())) && recorded.len() == 4,
        "four revisions were created, the records are {recorded:?}"
    );
    ensure!(
        records.iter().all(|record| !record.input_digest().is_empty()),
        "a record has lost its input digest: {records:?}"
    );
    Ok(())
}

async fn failed(context: &Context) -> Result<(), CaseError> {
    let request = context.install("web", &context.pack(&rejected()).await?, json!({}));
    let digest = request.input_digest.clone();
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    let state = failure.state.unwrap_or_default();
    ensure!(
        state.revision == 1 && state.status() == ReleaseStatus::Failed && state.input_digest == digest,
        "the failure reports the state {state:?}"
    );
    // The object before the rejected one may exist, and is removed with the release.
    context.remove(context.removal("web")).await?;
    let left = context.find::<k8s_openapi::api::core::v1::ConfigMap>("web").await?;
    ensure!(left.is_none(), "an object of the failed install still exists");
    Ok(())
}

async fn uninstalled(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    context.apply(context.upgrade("web", &package, json!({"size": 2}))).await?;
    let state = context.remove_keeping_history("web").await?;
    let records = context.records("web").await?;
    ensure!(
        records.len() == 2 && state.revision == 2 && records.iter().all(|record| record.status != "deployed"),
        "after the removal of revision {} the records are {records:?}",
        state.revision
    );
    context.remove(context.removal("web")).await
}

async fn separate(context: &Context) -> Result<(), CaseError> {
    let names = ["web", "web-a", "a-web", "webv"];
    let package = context.pack(&TestPackage::config()).await?;
    for (size, name) in names.iter().enumerate() {
        context.apply(context.install(name, &package, json!({"size": size}))).await?;
    }
    context.apply(context.upgrade("web", &package, json!({"size": 9}))).await?;
    for name in names {
        let (records, expected) = (context.records(name).await?, if name == "web" { 2 } else { 1 });
        ensure!(records.len() == expected, "{name}: there are the records {records:?}");
    }
    context.remove(context.removal("web")).await?;
    for name in &names[1..] {
        let state = context.observe_existing(name).await?;
        context.agree(&state).await?;
    }
    Ok(())
}

async fn time(context: &Context) -> Result<(), CaseError> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let before = now();
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let Some(updated) = context.newest_record("web").await?.updated else { return Ok(()) };
    let updated = u64::try_from(updated).unwrap_or_default();
    ensure!(
        (before..=now()).contains(&updated),
        "the record was changed between {before} and {}, its label is {updated}",
        now()
    );
    Ok(())
}

async fn secret(context: &Context) -> Result<(), CaseError> {
    const SECRET: &str = "canary-51c0";
    // The package renders no values.
    let object = CONFIG.replace("$(values)", "none");
    let package = context.pack(&TestPackage::new("secret").manifest(object)).await?;
    let state = context.apply(context.install("web", &package, json!({"password": SECRET}))).await?;
    ensure!(!format!("{state:?}").contains(SECRET), "Observe returns a value: {state:?}");
    let wrong = TestPackage::new("secret").version("2.0.0").manifest(format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {RELEASE}}}\nspec:\n  ports: [{{port: 80, protocol: $(values)}}]\n"
    ));
    let request = context.upgrade("web", &context.pack(&wrong).await?, json!({"password": SECRET}));
    context.apply_fails(request, FailureCategory::Rejected).await?;

    let api = context.record_api()?;
    let contained = context.profile.records()?.resource.kind == "Secret";
    for record in context.records("web").await? {
        let shown = if contained {
            serde_json::to_string(&api.get_metadata(&record.object).await?)
        } else {
            serde_json::to_string(&api.get(&record.object).await?)
        };
        let shown = shown.map_err(|error| CaseError::Host(error.into()))?;
        ensure!(!shown.contains(SECRET), "the record {} shows a value", record.object);
    }
    Ok(())
}
