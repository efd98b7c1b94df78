//! Helm hooks.

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};

use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    request::{RequestExt as _, duration},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "helm/hooks/order",
        [HelmRecords, Hooks],
        order,
        "Hooks run in the order of event and weight, each after the previous one has ended."
    ),
    case!(
        "helm/hooks/order-waiting",
        [HelmRecords, Hooks],
        order_waiting,
        "Hooks run in the same order with wait."
    ),
    case!(
        "helm/hooks/failing",
        [HelmRecords, Hooks],
        failing,
        "A failing hook is HOOK_FAILED, it is named, and the release is failed."
    ),
    case!(
        "helm/hooks/endless",
        [HelmRecords, Hooks],
        endless,
        "A hook that does not end within the timeout is HOOK_FAILED."
    ),
    case!(
        "helm/hooks/unchanged",
        [HelmRecords, Hooks],
        unchanged,
        "Hooks do not run again for inputs that are deployed."
    ),
    case!("helm/hooks/disabled", [HelmRecords, Hooks], disabled, "Hooks can be disabled."),
    case!("helm/hooks/deleted", [HelmRecords, Hooks], deleted, "Helm deletes a hook by its delete policy."),
];

fn chart() -> Chart {
    Chart::config()
        .hook(&Hook::new("b", "pre-install,pre-upgrade,pre-delete", HookEnd::Succeeds).weight(5))
        .hook(&Hook::new("a", "pre-install,pre-upgrade,pre-delete", HookEnd::Succeeds).weight(-5))
        .hook(&Hook::new("z", "post-install,post-upgrade,post-delete", HookEnd::Succeeds))
}

async fn order(context: &Context) -> Result<(), CaseError> {
    in_order(context, false).await
}

async fn order_waiting(context: &Context) -> Result<(), CaseError> {
    in_order(context, true).await
}

async fn in_order(context: &Context, wait: bool) -> Result<(), CaseError> {
    let package = context.pack_chart(&chart())?;
    let mut requests = context.environment.host.requests();
    let mut check = |what: &str, object: &'static str| {
        let written = requests.read().map_err(CaseError::Host)?.into_iter().filter(|request| {
            request.namespace == context.namespace
                && matches!(&*request.verb, "create" | "patch" | "update" | "delete")
                && (request.resource == "jobs" || request.resource == "configmaps")
        });
        // Old hooks are deleted before new ones are created: only the last request of each name counts.
        let mut names: Vec<String> = Vec::new();
        for request in written {
            let name = if request.name.is_empty() { object.to_owned() } else { request.name };
            names.retain(|known| *known != name);
            names.push(name);
        }
        let expected = ["web-a", "web-b", "web", "web-z"];
        ensure!(names == expected, "{what}: the objects were written in the order {names:?}");
        Ok(())
    };
    let applied = context.apply(context.install("web", &package, "size: 1").with(|o| o.wait = wait)).await?;
    ensure!(applied.revision == 1, "got revision {}", applied.revision);
    check("install", "web")?;
    one_after_another(context).await?;
    context.apply(context.upgrade("web", &package, "size: 2").with(|o| o.wait = wait)).await?;
    check("upgrade", "web")?;
    one_after_another(context).await?;
    context.remove(context.removal("web").with(|o| o.wait = wait)).await?;
    check("remove", "web")
}

async fn one_after_another(context: &Context) -> Result<(), CaseError> {
    let (first, second) = (context.get::<Job>("web-a").await?, context.get::<Job>("web-b").await?);
    let ended = first.status.and_then(|status| status.completion_time).map(|time| time.0);
    let started = second.metadata.creation_timestamp.map(|time| time.0);
    ensure!(
        ended.is_some() && ended <= started,
        "the first hook ended at {ended:?}, the second started at {started:?}"
    );
    Ok(())
}

async fn failing(context: &Context) -> Result<(), CaseError> {
    let good = context.pack_chart(&Chart::config())?;
    for event in ["pre-install", "post-install", "pre-upgrade", "post-upgrade"] {
        let package = context.pack_chart(&Chart::config().hook(&Hook::new("bad", event, HookEnd::Fails)))?;
        let upgrading = event.ends_with("upgrade");
        let request = if upgrading {
            context.apply(context.install(event, &good, "")).await?;
            context.upgrade(event, &package, "")
        } else {
            context.install(event, &package, "")
        };
        let failure = context
            .apply_fails(request, FailureCategory::HookFailed)
            .await
            .map_err(|error| error.within(event))?;
        let (hook, state) = (format!("{event}-bad"), failure.state.clone().unwrap_or_default());
        ensure!(
            failure.message.contains(&hook),
            "{event}: the message does not name {hook}: {}",
            failure.message
        );
        ensure!(state.status() == ReleaseStatus::Failed, "{event}: the state is {state:?}");
        // The next upgrade succeeds.
        context.apply(context.upgrade(event, &good, "")).await.map_err(|error| error.within(event))?;
    }
    failing_removal(context).await
}

async fn failing_removal(context: &Context) -> Result<(), CaseError> {
    let package =
        context.pack_chart(&Chart::config().hook(&Hook::new("bad", "pre-delete", HookEnd::Fails)))?;
    context.apply(context.install("web", &package, "")).await?;
    let ended = context.tool.remove(context.removal("web")).await?;
    let failure = context.check_failed(ended, FailureCategory::HookFailed).await?;
    ensure!(failure.message.contains("web-bad"), "the message does not name the hook: {}", failure.message);
    context.get::<ConfigMap>("web").await?;
    context.remove(context.removal("web").with(|options| options.disable_hooks = true)).await
}

async fn endless(context: &Context) -> Result<(), CaseError> {
    let package =
        context.pack_chart(&Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never)))?;
    let limit = duration(std::time::Duration::from_secs(2));
    let request = context.install("web", &package, "").with(|options| options.timeout = limit);
    let failure = context.apply_fails(request, FailureCategory::HookFailed).await?;
    ensure!(failure.message.contains("web-held"), "the message does not name the hook: {}", failure.message);
    let left = context.find::<ConfigMap>("web").await?;
    ensure!(left.is_none(), "objects were applied although a previous hook failed");
    Ok(())
}

async fn unchanged(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&chart())?;
    let deployed = context.apply(context.install("web", &package, "")).await?;
    let before = hook_uids(context).await?;
    context.apply_unchanged(context.upgrade("web", &package, ""), &deployed).await?;
    let after = hook_uids(context).await?;
    ensure!(before == after, "the Jobs of the hooks were {before:?}, now {after:?}");
    Ok(())
}

async fn hook_uids(context: &Context) -> Result<Vec<Option<String>>, CaseError> {
    let mut uids = Vec::new();
    for name in ["web-a", "web-b", "web-z"] {
        uids.push(context.get::<Job>(name).await?.metadata.uid);
    }
    Ok(uids)
}

async fn disabled(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&chart())?;
    let request = context.install("web", &package, "").with(|options| options.disable_hooks = true);
    let digest = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    ensure!(ended.steps.iter().all(|step| step.kind() != StepKind::Hook), "a step of a hook in {steps}");
    context.check_applied(ended, &digest).await?;
    context.apply(context.upgrade("web", &package, "size: 1").with(|o| o.disable_hooks = true)).await?;
    context.remove(context.removal("web").with(|options| options.disable_hooks = true)).await?;
    for name in ["web-a", "web-b", "web-z"] {
        ensure!(
            context.find::<Job>(name).await?.is_none(),
            "the hook {name} ran although hooks were disabled"
        );
    }
    Ok(())
}

async fn deleted(context: &Context) -> Result<(), CaseError> {
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook\n  annotations:\n    \
                helm.sh/hook: post-install\n    helm.sh/hook-delete-policy: hook-succeeded\n";
    let package = context.pack_chart(&Chart::config().template("hook.yaml", hook))?;
    context.apply(context.install("web", &package, "")).await?;
    ensure!(
        context.find::<ConfigMap>("hook").await?.is_none(),
        "a hook with the policy hook-succeeded still exists"
    );
    Ok(())
}
