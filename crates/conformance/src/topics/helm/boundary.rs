//! Rules for the objects of charts: of hooks, in `crds/`, and of earlier revisions.

use chandler_tool::generated::tool::{
    FailureCategory, Impersonate, KindPattern, ObjectRule, ReleaseStatus, Target,
};
use k8s_openapi::api::{
    core::v1::ConfigMap,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::Api;
use serde_json::json;

use crate::{
    Case, CaseError,
    chart::{CONFIG, Chart},
    context::Context,
    custom_resources::{create_definition, definition, find_definition, group, thing, things},
    request::RequestExt as _,
    topics::boundary::{rule, under},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/boundary/hidden",
        [HelmRecords, Hooks, Crds, ObjectRules],
        hidden,
        "What is not allowed is found in hooks, in crds/ and in lists of other kinds before anything is written."
    ),
    case!(
        "helm/boundary/crds",
        [HelmRecords, Crds, ObjectRules],
        crds,
        "With a rule that lists CRDs, templates see and use the kinds of crds/."
    ),
    case!(
        "helm/boundary/earlier",
        [HelmRecords, Hooks, Rollback, ObjectRules],
        earlier,
        "A rollback to a revision that is not allowed is refused, and so is a removal whose hooks are not."
    ),
    case!(
        "helm/boundary/added",
        [HelmRecords, ObjectRules],
        added,
        "An object of a kind that was added to the cluster since is allowed in its namespace at once."
    ),
    case!(
        "helm/boundary/foreign",
        [HelmRecords, Impersonate, TakeOwnership],
        foreign,
        "An upgrade does not delete an object that an earlier revision has listed and was not allowed to change."
    ),
];

const BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {{ .Release.Name }}-{{ .Release.Namespace }}\n  \
    annotations: {helm.sh/hook: EVENT}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
    subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: evil}]\n";

/// What Helm takes for the first revision of another release.
const RECORD: &str = "apiVersion: v1\nkind: Secret\ntype: helm.sh/release.v1\nmetadata:\n  name: sh.helm.release.v1.other.v1\n  \
    labels: {owner: helm, name: other, version: \"1\", status: deployed}\n";

/// Returns a `ClusterRoleBinding` that is a hook for this event.
fn hook(event: &str) -> String {
    BINDING.replace("EVENT", event)
}

async fn hidden(context: &Context) -> Result<(), CaseError> {
    let crd = definition(&group(context), &["one"]);
    let list = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: list}}\nitems:\n- {}",
        hook("").replace('\n', "\n  ")
    );
    let in_folder = hook("none").replace("{{ .Release.Name }}-{{ .Release.Namespace }}", "hidden");
    let charts = [
        (
            "pre-install hook",
            Chart::config().template("hook.yaml", hook("pre-install")),
            "ClusterRoleBinding",
        ),
        ("pre-delete hook", Chart::config().template("hook.yaml", hook("pre-delete")), "ClusterRoleBinding"),
        ("test hook", Chart::config().template("hook.yaml", hook("test")), "ClusterRoleBinding"),
        ("CRD", Chart::config().file("crds/thing.yaml", crd.clone()), "CustomResourceDefinition"),
        ("binding in crds/", Chart::config().file("crds/binding.yaml", in_folder), "ClusterRoleBinding"),
        ("list", Chart::config().template("list.yaml", list), "ClusterRoleBinding"),
        ("record", Chart::config().template("record.yaml", RECORD), "record of a Helm release"),
    ];
    let rules = || vec![rule(context)];
    for (what, chart, kind) in charts {
        let install = context.install("web", &context.pack_chart(&chart)?, "").on(under(context, rules()));
        let refused = context.apply_fails(install, FailureCategory::NotAllowed).await;
        let failure = refused.map_err(|error| error.within(what))?;
        ensure!(failure.message.contains(kind), "{what}: {}", failure.message);
        ensure!(context.find::<ConfigMap>("web").await?.is_none(), "{what}: an object was written");
        context.agree_absent("web").await.map_err(|error| error.within(what))?;
    }
    // An allowed CRD is not created if a hook of the same chart is not allowed.
    let chart = Chart::config().file("crds/thing.yaml", crd).template("hook.yaml", hook("pre-install"));
    let install = context.install("web", &context.pack_chart(&chart)?, "");
    let install = install.on(under(context, vec![with_crds(context)]));
    context.apply_fails(install, FailureCategory::NotAllowed).await?;
    ensure!(find_definition(context).await?.is_none(), "the CRD was created");
    let bindings: Api<ClusterRoleBinding> = Api::all(context.environment.client.clone());
    let name = format!("web-{}", context.namespace);
    ensure!(bindings.get_opt(&name).await?.is_none(), "the hook was created");
    Ok(())
}

fn with_crds(context: &Context) -> ObjectRule {
    let pattern =
        KindPattern { group: "apiextensions.k8s.io".to_owned(), kind: "CustomResourceDefinition".to_owned() };
    ObjectRule { cluster_scoped_kinds: vec![pattern], ..rule(context) }
}

async fn crds(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
    let served = format!(
        "{{{{ if .Capabilities.APIVersions.Has \"{group}/v1/Thing\" }}}}\n{}{{{{ end }}}}\n",
        thing(&group, "{{ .Release.Name }}", "one")
    );
    let chart =
        Chart::config().file("crds/thing.yaml", definition(&group, &["one"])).template("thing.yaml", served);
    let package = context.pack_chart(&chart)?;
    context.apply(context.install("web", &package, "").on(under(context, vec![with_crds(context)]))).await?;
    ensure!(things(context).get_opt("web").await?.is_some(), "the custom resource does not exist");
    Ok(())
}

async fn earlier(context: &Context) -> Result<(), CaseError> {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \"{{ .Release.Namespace }}\"}\nrules: []\n";
    let first = Chart::config().template("role.yaml", role).template("hook.yaml", hook("pre-delete"));
    let first = context.apply(context.install("web", &context.pack_chart(&first)?, "")).await?;
    let second = Chart::config().version("2.0.0").template("hook.yaml", hook("pre-delete"));
    let second = context.apply(context.upgrade("web", &context.pack_chart(&second)?, "")).await?;
    let roles: Api<ClusterRole> = Api::all(context.environment.client.clone());
    ensure!(roles.get_opt(&context.namespace).await?.is_none(), "the upgrade has not deleted the role");
    let mut rollback = context.rollback("web", &first.input_digest, &second.input_digest);
    rollback.roll_back_deployed = true;
    let rollback = rollback.on(under(context, vec![rule(context)]));
    let ended = context.tool.rollback(rollback).await?;
    context.check_failed(ended, FailureCategory::NotAllowed).await?;
    ensure!(roles.get_opt(&context.namespace).await?.is_none(), "the role was restored");
    let removal = context.removal("web").on(under(context, vec![rule(context)]));
    let ended = context.tool.remove(removal.clone()).await?;
    context.check_failed(ended, FailureCategory::NotAllowed).await?;
    context.observe_existing("web").await?;
    context.remove(removal.with(|options| options.disable_hooks = true)).await
}

async fn added(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().template("thing.yaml", thing(&group(context), "{{ .Release.Name }}", "one"));
    let package = context.pack_chart(&chart)?;
    let install = || context.install("web", &package, "").on(under(context, vec![rule(context)]));
    // Afterwards the tool knows all kinds but this one.
    context.apply_fails(install(), FailureCategory::NotAllowed).await?;
    create_definition(context).await?;
    context.apply(install()).await?;
    ensure!(things(context).get_opt("web").await?.is_some(), "the custom resource does not exist");
    Ok(())
}

async fn foreign(context: &Context) -> Result<(), CaseError> {
    context.create_config("victim").await?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["web"], "verbs": ["*"]},
    ]);
    context.grant("deployer", &rules).await?;
    let user = context.account_user("deployer");
    let deployer = Target { impersonate: Some(Impersonate { user, groups: Vec::new() }), ..context.target() };
    let victim = CONFIG.replace("{{ .Release.Name }}", "victim");
    let both = context.pack_chart(&Chart::config().template("victim.yaml", victim))?;
    let install = context.install("web", &both, "").on(deployer).with(|options| {
        options.take_ownership = true;
        options.force_conflicts = true;
    });
    context.apply_fails(install, FailureCategory::Forbidden).await?;
    let failed = context.observe_existing("web").await?;
    ensure!(failed.status() == ReleaseStatus::Failed, "the install is {}", failed.status().as_str_name());
    let own = context.pack_chart(&Chart::config().version("2.0.0"))?;
    context.apply(context.upgrade("web", &own, "")).await?;
    context.get::<ConfigMap>("victim").await.map_err(|error| error.within("the upgrade"))?;
    Ok(())
}
