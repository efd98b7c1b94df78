//! What a tool may do on a cluster: as which user it acts there, and which objects it may write.

use chandler_tool::generated::tool::{FailureCategory, Impersonate, ObjectRule, Target};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::PostParams;
use serde_json::json;

use crate::{Case, CaseError, context::Context, package::TestPackage, request::RequestExt as _};

pub const CASES: &[Case] = &[
    case!(
        "boundary/impersonated",
        [Impersonate],
        impersonated,
        "Objects are written with the permissions of the impersonated user, and records with those of the credentials."
    ),
    case!(
        "boundary/namespaces",
        [ObjectRules],
        namespaces,
        "An object in a namespace that a rule does not list is NOT_ALLOWED, and nothing is written."
    ),
    case!(
        "boundary/kinds",
        [ObjectRules],
        kinds,
        "An object outside of namespaces is NOT_ALLOWED unless every rule lists its kind, also in a list."
    ),
    case!(
        "boundary/upgrade",
        [ObjectRules],
        upgrade,
        "An upgrade that is NOT_ALLOWED leaves the release unchanged, and it can still be removed."
    ),
];

/// A rule that allows objects in the namespace of the case only.
pub fn rule(context: &Context) -> ObjectRule {
    ObjectRule {
        name: "AddonTenancy conformance".to_owned(),
        namespaces: vec![context.namespace.clone()],
        ..ObjectRule::default()
    }
}

/// The cluster under rules.
pub fn under(context: &Context, object_rules: Vec<ObjectRule>) -> Target {
    Target { object_rules, ..context.target() }
}

const CLUSTER_ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: $(release)-hidden}\nrules: []\n";

async fn impersonated(context: &Context) -> Result<(), CaseError> {
    let as_user = |user: String| Target {
        impersonate: Some(Impersonate { user, groups: Vec::new() }),
        ..context.target()
    };
    let package = context.pack(&TestPackage::config()).await?;
    let unprivileged = as_user("somebody".to_owned());
    let install = context.install("web", &package, json!({})).on(unprivileged.clone());
    context.apply_fails(install, FailureCategory::Forbidden).await?;
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "the object was written");
    let observed = context.tool.observe(unprivileged, context.release("web"), 0).await?;
    ensure!(matches!(observed, Ok(None)), "the records are not read with the credentials: {observed:?}");

    // This account may write the objects of the package and nothing else, so that it cannot write records.
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("deployer".to_owned());
    context.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    context
        .grant("deployer", &json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]))
        .await?;
    let deployer = as_user(context.account_user("deployer"));
    let install = context.install("app", &package, json!({})).on(deployer.clone());
    context.apply(install).await?;
    ensure!(context.find::<ConfigMap>("app").await?.is_some(), "the object was not written");
    context.remove(context.removal("app").on(deployer)).await
}

async fn refused(
    context: &Context,
    package: &TestPackage,
    rules: Vec<ObjectRule>,
    named: &[&str],
) -> Result<(), CaseError> {
    let package = context.pack(package).await?;
    let install = context.install("web", &package, json!({})).on(under(context, rules));
    let failure = context.apply_fails(install, FailureCategory::NotAllowed).await?;
    for text in named {
        ensure!(failure.message.contains(text), "the message does not contain {text}: {}", failure.message);
    }
    ensure!(context.find::<ConfigMap>("web").await?.is_none(), "an object was written");
    context.agree_absent("web").await
}

async fn namespaces(context: &Context) -> Result<(), CaseError> {
    let elsewhere =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: $(release)-hidden, namespace: kube-system}\n";
    let package = TestPackage::config().manifest(elsewhere);
    refused(context, &package, vec![rule(context)], &["AddonTenancy conformance", "kube-system"]).await?;
    let other = ObjectRule { namespaces: vec!["other".to_owned()], ..rule(context) };
    refused(context, &TestPackage::config(), vec![rule(context), other], &[&context.namespace]).await?;
    let package = context.pack(&TestPackage::config()).await?;
    let prefix = context.namespace.get(..3).unwrap_or_default();
    let by_prefix = ObjectRule { namespaces: vec![format!("{prefix}*")], ..rule(context) };
    let install = context.install("web", &package, json!({}));
    context.apply(install.on(under(context, vec![rule(context), by_prefix]))).await.map(drop)
}

async fn kinds(context: &Context) -> Result<(), CaseError> {
    let role = TestPackage::config().manifest(CLUSTER_ROLE);
    let named = ["AddonTenancy conformance", "ClusterRole web-hidden"];
    refused(context, &role, vec![rule(context)], &named).await?;
    let item = CLUSTER_ROLE.replace('\n', "\n    ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n  - {}\n", item.trim_end());
    refused(context, &TestPackage::config().manifest(list), vec![rule(context)], &named).await
}

async fn upgrade(context: &Context) -> Result<(), CaseError> {
    let allowed = context.pack(&TestPackage::config()).await?;
    let target = under(context, vec![rule(context)]);
    let before =
        context.apply(context.install("web", &allowed, json!({"size": 1})).on(target.clone())).await?;
    let role = context.pack(&TestPackage::config().version("2.0.0").manifest(CLUSTER_ROLE)).await?;
    let request = context.upgrade("web", &role, json!({"size": 2})).on(target.clone());
    context.apply_fails(request, FailureCategory::NotAllowed).await?;
    let after = context.observe_existing("web").await?;
    ensure!(after.revision == before.revision, "revision {} was created", after.revision);
    context.remove(context.removal("web").on(target)).await
}
