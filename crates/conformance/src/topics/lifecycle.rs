//! A release's life: install, change, look, remove.

use chandler_tool::generated::tool::{
    ApplyMethod, ApplyRequest, FailureCategory, Release, ReleaseStatus, RemoveRequest, StepKind, Target,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{Api, api::DeleteParams};

use crate::{
    Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    objects::eventually,
    order::Order as _,
    tool::{End, describe},
};

pub const CASES: &[Case] = &[
    case!(
        "lifecycle/install",
        None,
        install,
        "An install makes revision 1, says its steps and lists its objects."
    ),
    case!(
        "lifecycle/upgrade",
        None,
        upgrade,
        "An upgrade makes the next revision and removes what the package no longer has."
    ),
    case!(
        "lifecycle/again",
        None,
        again,
        "The same input again makes a revision and leaves every object as it is."
    ),
    case!(
        "lifecycle/plan",
        None,
        plan,
        "An Apply whose plan saw another state than there is changes nothing."
    ),
    case!("lifecycle/remove", None, remove, "Removing leaves nothing; removing what is not there succeeds."),
    case!(
        "lifecycle/kept-history",
        None,
        kept_history,
        "A removal may keep the history, and an install goes on from it."
    ),
    case!("lifecycle/max-history", None, max_history, "No more revisions are kept than asked for."),
    case!("lifecycle/namespace", None, namespace, "A missing namespace is created only when asked for."),
    case!(
        "lifecycle/namespace-gone",
        None,
        namespace_gone,
        "A namespace that was there and has been deleted since is created again when asked for."
    ),
    case!(
        "lifecycle/race",
        None,
        race,
        "Of two processes that make the same revision at the same time, one does and one is told."
    ),
    case!(
        "lifecycle/incomplete",
        None,
        incomplete,
        "A request that lacks something is refused, and the process lives on."
    ),
];

async fn install(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let request = context.install("web", &package, "size: 1");
    let inputs = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    for kind in [StepKind::Fetched, StepKind::Applying] {
        ensure!(
            ended.steps.iter().any(|step| step.kind() == kind),
            "no step {} in {steps}",
            kind.as_str_name()
        );
    }
    let state = context.settled(ended, &inputs).await?;
    ensure!(state.revision == 1, "the first revision is {}", state.revision);
    ensure!(state.app_version == "app-1.0.0", "the app version is {:?}", state.app_version);
    ensure!(state.first_deployed.is_some() && state.last_deployed.is_some(), "no times in {state:?}");
    let [object] = &state.inventory[..] else {
        return Err(CaseError::Broken(format!("the inventory is {:?}", state.inventory)));
    };
    let named = (&*object.api_version, &*object.kind, &*object.namespace, &*object.name);
    ensure!(named == ("v1", "ConfigMap", &*context.namespace, "web"), "the inventory lists {named:?}");
    context.get::<ConfigMap>("web").await.map(drop)
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let old = Chart::config().template("extra.yaml", CONFIG.replace("{{ .Release.Name }}", "extra"));
    context.applied(context.install("web", &context.pack(&old)?, "size: 1")).await?;
    let new = context.pack(&Chart::config().version("2.0.0"))?;
    let state = context.applied(context.upgrade("web", &new, "size: 2")).await?;
    ensure!(state.revision == 2 && state.package_version == "2.0.0", "got {state:?}");
    let values = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    ensure!(
        values.get("values").is_some_and(|values| values.contains(r#""size":2"#)),
        "the object has {values:?}"
    );
    let left = context.find::<ConfigMap>("extra").await?;
    ensure!(left.is_none(), "an object that the package no longer has is still there");

    let seen = context.tool.observe(context.target(), context.release("web"), 10).await?;
    let history = seen.ok().flatten().unwrap_or_default().history;
    let words: Vec<_> =
        history.iter().map(|past| (past.revision, past.status(), &*past.package_version)).collect();
    let expected = [(2, ReleaseStatus::Deployed, "2.0.0"), (1, ReleaseStatus::Superseded, "1.0.0")];
    ensure!(words == expected, "the history is {words:?}");
    Ok(())
}

async fn again(context: &Context) -> Result<(), CaseError> {
    for (name, method) in [("server", ApplyMethod::ServerSide), ("client", ApplyMethod::ClientSide)] {
        let package = context.pack(&Chart::deployment().template("config.yaml", CONFIG))?;
        let values = "replicas: 2\nlist: [a, b]\n";
        let with_method =
            |options: &mut chandler_tool::generated::tool::ApplyOptions| options.method = method.into();
        let first =
            context.install(name, &package, values).with(with_method).with(|options| options.wait = true);
        context.applied(first).await?;
        let before = versions(context, name).await?;
        let state = context.applied(context.upgrade(name, &package, values).with(with_method)).await?;
        let after = versions(context, name).await?;
        ensure!(state.revision == 2, "the same input again made revision {}", state.revision);
        ensure!(
            before == after,
            "{name}-side: (generation, resource version) were {before:?}, now {after:?}"
        );
    }
    Ok(())
}

/// What changes when an object does.
async fn versions(context: &Context, name: &str) -> Result<(Option<i64>, Option<String>), CaseError> {
    let generation = context.get::<Deployment>(name).await?.metadata.generation;
    Ok((generation, context.get::<ConfigMap>(name).await?.metadata.resource_version))
}

async fn plan(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    context.refused(context.upgrade("web", &package, ""), FailureCategory::Conflict).await?;
    context.agree_absent("web").await?;
    let state = context.applied(context.install("web", &package, "")).await?;
    context.refused(context.install("web", &package, "size: 2"), FailureCategory::Conflict).await?;
    context.agree(&state).await
}

async fn remove(context: &Context) -> Result<(), CaseError> {
    context.removed(context.removal("web")).await?;
    let package = context.pack(&Chart::config())?;
    context.applied(context.install("web", &package, "")).await?;
    let ended = context.tool.remove(context.removal("web")).await?;
    let steps = describe(&ended.steps);
    ensure!(ended.steps.iter().any(|step| step.kind() == StepKind::Removing), "no step REMOVING in {steps}");
    ended.absent()?;
    context.agree_absent("web").await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object is still there");
    context.removed(context.removal("web")).await
}

async fn kept_history(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    context.applied(context.install("web", &package, "size: 1")).await?;
    context.retired("web").await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the release's object is still there");
    // Retired already: the same answer.
    context.retired("web").await?;
    context.refused(context.upgrade("web", &package, ""), FailureCategory::Conflict).await?;
    let state = context.applied(context.install("web", &package, "size: 2")).await?;
    ensure!(state.revision == 2, "an install over kept history made revision {}", state.revision);
    context.get::<ConfigMap>("web").await?;
    context.removed(context.removal("web")).await
}

async fn max_history(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    context.applied(context.install("web", &package, "size: 0")).await?;
    for size in 1..4 {
        let request = context.upgrade("web", &package, &format!("size: {size}"));
        context.applied(request.with(|options| options.max_history = 2)).await?;
    }
    let history = context.helm().history("web").await?.unwrap_or_default();
    let kept: Vec<_> = history.iter().map(|past| past.revision).collect();
    ensure!(kept == [3, 4], "asked for 2 revisions to be kept, kept are {kept:?}");
    Ok(())
}

async fn namespace(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let mut request = context.install("web", &package, "");
    let other = format!("{}-made", context.namespace);
    request.release.get_or_insert_default().namespace.clone_from(&other);
    context.tool.apply(request.clone()).await?.failure(FailureCategory::Rejected)?;
    let state = context.tool.apply(request.with(|options| options.create_namespace = true)).await?.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    ensure!(state.release.unwrap_or_default().namespace == other, "the release is in another namespace");
    Ok(())
}

async fn namespace_gone(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config())?;
    let mut request = context.install("web", &package, "").with(|options| options.create_namespace = true);
    let other = format!("{}-made", context.namespace);
    request.release.get_or_insert_default().namespace.clone_from(&other);
    context.tool.apply(request.clone()).await?.state()?;
    let namespaces: Api<Namespace> = Api::all(context.environment.client.clone());
    namespaces.delete(&other, &DeleteParams::default()).await?;
    eventually("the namespace is gone", || async { Ok(namespaces.get_opt(&other).await?.is_none()) }).await?;
    let state = context.tool.apply(request).await?.state()?;
    ensure!(state.status() == ReleaseStatus::Deployed, "got {state:?}");
    Ok(())
}

async fn race(context: &Context) -> Result<(), CaseError> {
    let (one, two) = (context.own_tool(), context.own_tool());
    let package = context.pack(&Chart::config())?;
    for revision in 1..6 {
        let request = |values: &str| match revision {
            1 => context.install("web", &package, values),
            _ => context.upgrade("web", &package, values),
        };
        let both = tokio::join!(one.apply(request("size: 1")), two.apply(request("size: 2")));
        let (mut made, mut told) = (0, 0);
        for ended in [both.0?, both.1?] {
            match ended.end {
                End::State(_) => made += 1,
                End::Failure(failure) if failure.category() == FailureCategory::Conflict => told += 1,
                end => return Err(CaseError::Broken(format!("the race ended in {end:?}"))),
            }
        }
        // The second may also begin after the first has ended, and upgrade what that has made.
        ensure!(made >= 1 && made + told == 2, "{made} made the revision, {told} were told");
        let state = context.observed("web").await?;
        ensure!(state.status() == ReleaseStatus::Deployed, "the race left {}", state.status().as_str_name());
        context.agree(&state).await?;
        let history = context.helm().history("web").await?.unwrap_or_default();
        let deployed = history.iter().filter(|past| past.status == "deployed").count();
        ensure!(deployed == 1, "{deployed} revisions are deployed: {history:?}");
    }
    Ok(())
}

async fn incomplete(context: &Context) -> Result<(), CaseError> {
    let tool = context.own_tool();
    let process = tool.supervisor().lease().await?.pid();
    let package = context.pack(&Chart::config())?;
    let complete = context.install("web", &package, "");
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
        named(&"x".repeat(54)),
    ];
    for request in requests {
        let said = format!("{:?} {:?}", request.release, request.action());
        let end = tool.apply(request).await?.end;
        ensure!(matches!(end, End::Failure(_)), "{said}: ended in {end:?}");
    }
    let end = tool.remove(RemoveRequest::default()).await?.end;
    ensure!(matches!(end, End::Failure(_)), "an empty Remove ended in {end:?}");
    let seen = tool.observe(Target::default(), Release::default(), 0).await?;
    ensure!(seen.is_err(), "an empty Observe answered {seen:?}");
    let after = tool.supervisor().lease().await?.pid();
    ensure!(process == after, "process {process} did not survive, {after} serves now");
    context.agree_absent("web").await
}
