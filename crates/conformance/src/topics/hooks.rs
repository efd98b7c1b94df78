//! Hooks, as Helm means them.

use chandler_tool::generated::tool::{FailureCategory, ReleaseStatus, StepKind};
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};

use super::packages::about;
use crate::{
    Ability, Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    order::{self, Order as _},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "hooks/order",
        Some(Ability::Hooks),
        order,
        "Hooks run by event and weight, each after the one before has ended."
    ),
    case!("hooks/order-waiting", Some(Ability::Hooks), order_waiting, "They do so with wait as well."),
    case!(
        "hooks/failing",
        Some(Ability::Hooks),
        failing,
        "A failing hook is HOOK_FAILED, named, and the release failed."
    ),
    case!(
        "hooks/endless",
        Some(Ability::Hooks),
        endless,
        "A hook that does not end within the time limit is HOOK_FAILED."
    ),
    case!("hooks/disabled", Some(Ability::Hooks), disabled, "Hooks can be switched off."),
    case!("hooks/deleted", Some(Ability::Hooks), deleted, "A hook's delete policy is kept."),
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
    let package = context.pack(&chart())?;
    let mut requests = context.environment.host.requests();
    let mut seen = |what: &str, object: &'static str| {
        let written = requests.read().map_err(CaseError::Host)?.into_iter().filter(|request| {
            request.namespace == context.namespace
                && matches!(&*request.verb, "create" | "patch" | "update" | "delete")
                && (request.resource == "jobs" || request.resource == "configmaps")
        });
        // Old hooks are deleted before new ones are made: only what a name was touched by last counts.
        let mut names: Vec<String> = Vec::new();
        for request in written {
            let name = if request.name.is_empty() { object.to_owned() } else { request.name };
            names.retain(|known| *known != name);
            names.push(name);
        }
        let expected = ["web-a", "web-b", "web", "web-z"];
        ensure!(names == expected, "{what}: touched were {names:?}, in this order");
        Ok(())
    };
    let applied =
        context.applied(context.install("web", &package, "size: 1").with(|o| o.wait = wait)).await?;
    ensure!(applied.revision == 1, "got revision {}", applied.revision);
    seen("install", "web")?;
    one_after_the_other(context).await?;
    context.applied(context.upgrade("web", &package, "size: 2").with(|o| o.wait = wait)).await?;
    seen("upgrade", "web")?;
    one_after_the_other(context).await?;
    context.removed(context.removal("web").with(|o| o.wait = wait)).await?;
    seen("remove", "web")
}

async fn one_after_the_other(context: &Context) -> Result<(), CaseError> {
    let (first, second) = (context.get::<Job>("web-a").await?, context.get::<Job>("web-b").await?);
    let ended = first.status.and_then(|status| status.completion_time).map(|time| time.0);
    let began = second.metadata.creation_timestamp.map(|time| time.0);
    ensure!(
        ended.is_some() && ended <= began,
        "the first hook ended at {ended:?}, the second began at {began:?}"
    );
    Ok(())
}

async fn failing(context: &Context) -> Result<(), CaseError> {
    let good = context.pack(&Chart::config())?;
    for event in ["pre-install", "post-install", "pre-upgrade", "post-upgrade"] {
        let package = context.pack(&Chart::config().hook(&Hook::new("bad", event, HookEnd::Fails)))?;
        let upgrading = event.ends_with("upgrade");
        let request = if upgrading {
            context.applied(context.install(event, &good, "")).await?;
            context.upgrade(event, &package, "")
        } else {
            context.install(event, &package, "")
        };
        let failure =
            context.refused(request, FailureCategory::HookFailed).await.map_err(|e| about(event, &e))?;
        let (hook, state) = (format!("{event}-bad"), failure.state.clone().unwrap_or_default());
        ensure!(
            failure.message.contains(&hook),
            "{event}: the message does not name {hook}: {}",
            failure.message
        );
        ensure!(state.status() == ReleaseStatus::Failed, "{event}: the state is {state:?}");
        // A failed revision is no obstacle.
        context.applied(context.upgrade(event, &good, "")).await.map_err(|e| about(event, &e))?;
    }
    failing_removal(context).await
}

async fn failing_removal(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config().hook(&Hook::new("bad", "pre-delete", HookEnd::Fails)))?;
    context.applied(context.install("web", &package, "")).await?;
    let ended = context.tool.remove(context.removal("web")).await?;
    let failure = context.failed(ended, FailureCategory::HookFailed).await?;
    ensure!(failure.message.contains("web-bad"), "the message does not name the hook: {}", failure.message);
    context.get::<ConfigMap>("web").await?;
    context.removed(context.removal("web").with(|options| options.disable_hooks = true)).await
}

async fn endless(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&Chart::config().hook(&Hook::new("held", "pre-install", HookEnd::Never)))?;
    let limit = order::duration(std::time::Duration::from_secs(2));
    let request = context.install("web", &package, "").with(|options| options.timeout = limit);
    let failure = context.refused(request, FailureCategory::HookFailed).await?;
    ensure!(failure.message.contains("web-held"), "the message does not name the hook: {}", failure.message);
    let left = context.find::<ConfigMap>("web").await?;
    ensure!(left.is_none(), "objects were applied although a hook before them had failed");
    Ok(())
}

async fn disabled(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&chart())?;
    let request = context.install("web", &package, "").with(|options| options.disable_hooks = true);
    let inputs = request.input_digest.clone();
    let ended = context.tool.apply(request).await?;
    let steps = describe(&ended.steps);
    ensure!(ended.steps.iter().all(|step| step.kind() != StepKind::Hook), "a hook's step in {steps}");
    context.settled(ended, &inputs).await?;
    context.applied(context.upgrade("web", &package, "size: 1").with(|o| o.disable_hooks = true)).await?;
    context.removed(context.removal("web").with(|options| options.disable_hooks = true)).await?;
    for name in ["web-a", "web-b", "web-z"] {
        ensure!(context.find::<Job>(name).await?.is_none(), "the hook {name} ran although hooks were off");
    }
    Ok(())
}

async fn deleted(context: &Context) -> Result<(), CaseError> {
    let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook\n  annotations:\n    \
                helm.sh/hook: post-install\n    helm.sh/hook-delete-policy: hook-succeeded\n";
    let package = context.pack(&Chart::config().template("hook.yaml", hook))?;
    context.applied(context.install("web", &package, "")).await?;
    ensure!(
        context.find::<ConfigMap>("hook").await?.is_none(),
        "a hook to be deleted on success is still there"
    );
    Ok(())
}
