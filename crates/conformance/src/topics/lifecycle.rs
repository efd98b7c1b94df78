//! Install, upgrade, observe and remove a release.

use chandler_tool::generated::tool::{
    ApplyRequest, FailureCategory, Release, ReleaseStatus, RemoveRequest, StepKind, Target,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    objects::eventually,
    package::{CONFIG, RELEASE, TestPackage},
    request::{RequestExt as _, recovering, with_other_digest},
    tool::{End, describe},
};

pub const CASES: &[Case] = &[
    case!(
        "lifecycle/install",
        [],
        install,
        "An install creates revision 1, reports its steps and lists its objects."
    ),
    case!(
        "lifecycle/upgrade",
        [],
        upgrade,
        "An upgrade creates the next revision and deletes objects that the package no longer has."
    ),
    case!(
        "lifecycle/again",
        [],
        again,
        "Applying other inputs that render the same objects creates a revision and changes no object."
    ),
    case!(
        "lifecycle/unchanged",
        [],
        unchanged,
        "Applying inputs that are deployed creates no revision, writes nothing, and reports that nothing changed."
    ),
    case!(
        "lifecycle/plan",
        [],
        plan,
        "An install of an existing release and an upgrade of a missing one are a CONFLICT and change nothing."
    ),
    case!(
        "lifecycle/remove",
        [],
        remove,
        "Removing a release deletes everything; removing a release that does not exist succeeds."
    ),
    case!(
        "lifecycle/kept-history",
        [],
        kept_history,
        "A removal can keep the history, and an install continues it."
    ),
    case!("lifecycle/max-history", [], max_history, "An upgrade keeps at most the requested revisions."),
    case!("lifecycle/namespace", [], namespace, "A missing namespace is created only on request."),
    case!(
        "lifecycle/namespace-gone",
        [],
        namespace_gone,
        "A namespace that was deleted since the last operation is created again on request."
    ),
    case!(
        "lifecycle/rejected",
        [],
        rejected,
        "An object with an unknown field is REJECTED, the field is named, and the next upgrade succeeds."
    ),
    case!(
        "lifecycle/race",
        [],
        race,
        "Of two processes that create the same revision at the same time, one succeeds and one gets a CONFLICT."
    ),
    case!(
        "lifecycle/incomplete",
        [],
        incomplete,
        "An incomplete request fails, and the process keeps running."
    ),
];

async fn install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({"size": 1}));
    let digest = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    for kind in [StepKind::Fetched, StepKind::Applying] {
        ensure!(
            ended.steps.iter().any(|step| step.kind() == kind),
            "no step {} in {steps}",
            kind.as_str_name()
        );
    }
    let state = context.check_applied(ended, &digest).await?;
    ensure!(state.revision == 1, "the first revision is {}", state.revision);
    let info =
        context.tool.inspect(&package).await?.map_err(|failure| CaseError::Violation(failure.message))?;
    let inspected = (&*info.name, &*info.version, &*info.app_version);
    let released = (&*state.package_name, &*state.package_version, &*state.app_version);
    ensure!(released == inspected, "the release is of {released:?}, Inspect returns {inspected:?}");
    ensure!(state.first_deployed.is_some() && state.last_deployed.is_some(), "no times in {state:?}");
    let [object] = &state.inventory[..] else {
        return Err(CaseError::Violation(format!("the inventory is {:?}", state.inventory)));
    };
    let named = (&*object.api_version, &*object.kind, &*object.namespace, &*object.name);
    ensure!(named == ("v1", "ConfigMap", &*context.namespace, "web"), "the inventory lists {named:?}");
    context.get::<ConfigMap>("web").await.map(drop)
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let old = TestPackage::config().manifest(CONFIG.replace(RELEASE, "extra"));
    context.apply(context.install("web", &context.pack(&old).await?, json!({"size": 1}))).await?;
    context.get::<ConfigMap>("extra").await?;
    let new = context.pack(&TestPackage::config().version("2.0.0")).await?;
    let state = context.apply(context.upgrade("web", &new, json!({"size": 2}))).await?;
    ensure!(state.revision == 2 && state.package_version == "2.0.0", "got {state:?}");
    let values = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        values.get("values").is_some_and(|values| values.contains(r#""size":2"#)),
        "the object has {values:?}"
    );
    let left = context.find::<ConfigMap>("extra").await?;
    ensure!(left.is_none(), "an object that the package no longer has still exists");

    let observed = context.tool.observe(context.target(), context.release("web"), 10).await?;
    let history = observed.ok().flatten().unwrap_or_default().history;
    let revisions: Vec<_> =
        history.iter().map(|past| (past.revision, past.status(), &*past.package_version)).collect();
    let expected = [(2, ReleaseStatus::Deployed, "2.0.0"), (1, ReleaseStatus::Superseded, "1.0.0")];
    ensure!(revisions == expected, "the history is {revisions:?}");
    Ok(())
}

async fn again(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::deployment(2).manifest(CONFIG)).await?;
    let values = json!({"size": 2, "list": ["a", "b"]});
    context.apply(context.install("web", &package, values.clone())).await?;
    let before = versions(context).await?;
    let request = with_other_digest(context.upgrade("web", &package, values));
    let state = context.apply(request).await?;
    let after = versions(context).await?;
    ensure!(state.revision == 2, "other inputs created revision {}", state.revision);
    ensure!(before == after, "(generation, resource version) were {before:?}, now {after:?}");
    Ok(())
}

/// Returns what changes when an object changes. The Deployment's status changes anyway.
async fn versions(context: &Context) -> Result<(Option<i64>, Option<String>), CaseError> {
    let generation = context.get::<Deployment>("web").await?.metadata.generation;
    Ok((generation, context.get::<ConfigMap>("web").await?.metadata.resource_version))
}

async fn unchanged(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let install = || context.install("web", &package, json!({"size": 1}));
    let upgrade = || context.upgrade("web", &package, json!({"size": 1}));
    let deployed = context.apply(install()).await?;
    let before = written(context).await?;
    for (what, request) in [
        ("an upgrade", upgrade()),
        ("an install", install()),
        ("an upgrade with recover", recovering(upgrade())),
    ] {
        context.apply_unchanged(request, &deployed).await.map_err(|error| error.within(what))?;
        let after = written(context).await?;
        ensure!(before == after, "{what}: (name, resource version) were {before:?}, now {after:?}");
    }
    // Without a digest the tool cannot know that the inputs are the same.
    let request = ApplyRequest { input_digest: String::new(), ..upgrade() };
    let state = context.apply(request).await?;
    ensure!(state.revision == 2, "without an input digest the newest revision is {}", state.revision);
    Ok(())
}

/// Returns the names and resource versions of the release's records and of its object.
pub async fn written(context: &Context) -> Result<Vec<(String, Option<String>)>, CaseError> {
    let selected = ListParams::default().labels(&context.record_selector("web")?);
    let records = context.record_api()?.list_metadata(&selected).await?;
    let mut written: Vec<_> =
        records.iter().map(|record| (record.name_any(), record.resource_version())).collect();
    let object = context.get::<ConfigMap>("web").await?;
    written.push((object.name_any(), object.resource_version()));
    Ok(written)
}

async fn plan(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply_fails(context.upgrade("web", &package, json!({})), FailureCategory::Conflict).await?;
    context.agree_absent("web").await?;
    let state = context.apply(context.install("web", &package, json!({}))).await?;
    context
        .apply_fails(context.install("web", &package, json!({"size": 2})), FailureCategory::Conflict)
        .await?;
    context.agree(&state).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    context.remove(context.removal("web")).await?;
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({}))).await?;
    let ended = context.tool.remove(context.removal("web")).await?;
    let steps = describe(&ended.steps);
    ensure!(ended.steps.iter().any(|step| step.kind() == StepKind::Removing), "no step REMOVING in {steps}");
    ended.absent()?;
    context.agree_absent("web").await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    context.remove(context.removal("web")).await
}

async fn kept_history(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    context.remove_keeping_history("web").await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object still exists");
    // Removing again has the same result.
    context.remove_keeping_history("web").await?;
    context.apply_fails(context.upgrade("web", &package, json!({})), FailureCategory::Conflict).await?;
    let state = context.apply(context.install("web", &package, json!({"size": 2}))).await?;
    ensure!(state.revision == 2, "an install over kept history made revision {}", state.revision);
    context.get::<ConfigMap>("web").await?;
    context.remove(context.removal("web")).await
}

async fn max_history(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    context.apply(context.install("web", &package, json!({"size": 0}))).await?;
    for size in 1..4 {
        let request = context.upgrade("web", &package, json!({"size": size}));
        context.apply(request.with(|options| options.max_history = 2)).await?;
    }
    let kept: Vec<_> = context.records("web").await?.iter().map(|record| record.revision).collect();
    ensure!(kept == [4, 3], "2 revisions were to be kept, the records are {kept:?}");
    Ok(())
}

async fn namespace(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let mut request = context.install("web", &package, json!({}));
    let other = format!("{}-made", context.namespace);
    request.release.get_or_insert_default().namespace.clone_from(&other);
    context.tool.apply(request.clone()).await?.failure(FailureCategory::Rejected)?;
    let state = context.tool.apply(request.with(|options| options.create_namespace = true)).await?.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    ensure!(state.release.unwrap_or_default().namespace == other, "the release is in another namespace");
    Ok(())
}

async fn namespace_gone(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let mut request =
        context.install("web", &package, json!({})).with(|options| options.create_namespace = true);
    let other = format!("{}-made", context.namespace);
    request.release.get_or_insert_default().namespace.clone_from(&other);
    context.tool.apply(request.clone()).await?.state()?;
    let namespaces: Api<Namespace> = Api::all(context.environment.client.clone());
    namespaces.delete(&other, &DeleteParams::default()).await?;
    eventually("the deletion of the namespace", || async { Ok(namespaces.get_opt(&other).await?.is_none()) })
        .await?;
    let state = context.tool.apply(request).await?.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    Ok(())
}

async fn rejected(context: &Context) -> Result<(), CaseError> {
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\n\
                 spec: {ports: [{port: 80}], selektor: {a: b}}\n";
    let good = context.pack(&TestPackage::config()).await?;
    let bad = context.pack(&TestPackage::config().version("2.0.0").manifest(wrong)).await?;
    context.apply(context.install("web", &good, json!({"size": 1}))).await?;
    let request = context.upgrade("web", &bad, json!({"size": 2}));
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    ensure!(failure.message.contains("selektor"), "the message does not name the field: {}", failure.message);
    let state = context.observe_existing("web").await?;
    context.agree(&state).await?;
    context.apply(context.upgrade("web", &good, json!({"size": 3}))).await?;
    context.remove(context.removal("web")).await?;
    // An install that fails can be followed by a removal.
    let request = context.install("web", &bad, json!({}));
    context.apply_fails(request, FailureCategory::Rejected).await?;
    context.remove(context.removal("web")).await
}

async fn race(context: &Context) -> Result<(), CaseError> {
    let (one, two) = (context.own_tool(), context.own_tool());
    let package = context.pack(&TestPackage::config()).await?;
    for revision in 1..6 {
        let values = |size: u32| json!({"size": size, "round": revision});
        let request = |size: u32| match revision {
            1 => context.install("web", &package, values(size)),
            _ => context.upgrade("web", &package, values(size)),
        };
        let both = tokio::join!(one.apply(request(1)), two.apply(request(2)));
        let (mut succeeded, mut conflicts) = (0, 0);
        for ended in [both.0?, both.1?] {
            match ended.end {
                End::State(_) => succeeded += 1,
                End::Failure(failure) if failure.category() == FailureCategory::Conflict => conflicts += 1,
                end => return Err(CaseError::Violation(format!("the race ended in {end:?}"))),
            }
        }
        // The second may also start after the first has ended, and upgrade its revision.
        ensure!(
            succeeded >= 1 && succeeded + conflicts == 2,
            "{succeeded} succeeded, {conflicts} got a CONFLICT"
        );
        let state = context.observe_existing("web").await?;
        ensure!(state.status() == ReleaseStatus::Deployed, "the race left {}", state.status().as_str_name());
        context.agree(&state).await?;
        let records = context.records("web").await?;
        let deployed = records.iter().filter(|record| record.status == "deployed").count();
        ensure!(deployed == 1, "{deployed} revisions are deployed: {records:?}");
    }
    Ok(())
}

async fn incomplete(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let process = tool.supervisor().acquire().await?.pid();
    let package = context.pack(&TestPackage::config()).await?;
    let complete = context.install("web", &package, json!({}));
    let named = |name: &str| ApplyRequest { release: Some(context.release(name)), ..complete.clone() };
    let requests = [
        ApplyRequest::default(),
        ApplyRequest { target: None, ..complete.clone() },
        ApplyRequest { release: None, ..complete.clone() },
        ApplyRequest { package: None, ..complete.clone() },
        ApplyRequest { action: 0, ..complete.clone() },
        ApplyRequest { target: Some(Target::default()), ..complete.clone() },
        named("UPPER"),
        named("a/b"),
        named(&"x".repeat(300)),
    ];
    for request in requests {
        let summary = format!("{:?} {:?}", request.release, request.action());
        let end = tool.apply(request).await?.end;
        ensure!(matches!(end, End::Failure(_)), "{summary}: ended in {end:?}");
    }
    let end = tool.remove(RemoveRequest::default()).await?.end;
    ensure!(matches!(end, End::Failure(_)), "an empty Remove ended in {end:?}");
    let observed = tool.observe(Target::default(), Release::default(), 0).await?;
    ensure!(observed.is_err(), "an empty Observe returned {observed:?}");
    let after = tool.supervisor().acquire().await?.pid();
    ensure!(process == after, "process {process} ended, {after} serves now");
    context.agree_absent("web").await
}
