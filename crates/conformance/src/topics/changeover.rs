//! From client-side to server-side apply, for releases that someone else made.

use std::fmt::Debug;

use chandler_tool::generated::tool::{ApplyMethod, ApplyOptions, FailureCategory, Package, StepKind};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::ConfigMap},
};
use kube::{
    Resource, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    Ability, Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    order::{Order as _, recovering},
};

pub const CASES: &[Case] = &[
    case!(
        "changeover/fields",
        Some(Ability::ServerSideApply),
        fields,
        "The first upgrade is server-side and removes what it has no more, whoever wrote it; so do later ones."
    ),
    case!(
        "changeover/list-items",
        Some(Ability::ServerSideApply),
        list_items,
        "An item of a list is removed as a whole, with what the API server has added to it."
    ),
    case!(
        "changeover/others",
        Some(Ability::ServerSideApply),
        others,
        "Fields of others stay, and stay theirs; so does what another program of the same name wrote."
    ),
    case!(
        "changeover/drift",
        Some(Ability::ServerSideApply),
        drift,
        "The upgrade that changes over wins over everyone, as client-side apply does; the next is a CONFLICT."
    ),
    case!(
        "changeover/failed",
        Some(Ability::ServerSideApply),
        failed,
        "An upgrade that failed on the way is made good by the next."
    ),
    case!(
        "changeover/crash",
        Some(Ability::ServerSideApply),
        crash,
        "An upgrade cut off while it takes fields over is recovered from."
    ),
    case!(
        "changeover/impossible",
        Some(Ability::ServerSideApply),
        impossible,
        "A release with an object that cannot be applied server-side stays client-side if that is only preferred."
    ),
];

/// The name by which a controller goes that calls Helm in its own process, if nobody gives it a better one.
const CONTROLLER: &str = "manager";

/// Each key of the values is a key of the data.
const DATA: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data: {{ .Values.data | toJson }}
";

/// Each item of the values is a container; the API server adds defaults to each.
const CONTAINERS: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      containers:
      {{- range .Values.containers }}
      - name: {{ . }}
        image: example.invalid/main:1
        env: {{ $.Values.env | toJson }}
      {{- end }}
";

fn data() -> Chart {
    Chart::new("data").template("data.yaml", DATA)
}

fn containers() -> Chart {
    Chart::new("containers").template("deployment.yaml", CONTAINERS)
}

fn prefer(options: &mut ApplyOptions) {
    options.method = ApplyMethod::PreferServerSide.into();
}

/// A release as a controller leaves it that calls an older Helm in its own process.
async fn inherited<K>(context: &Context, package: &Package, values: &str) -> Result<(), CaseError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let file = context.path("values.json");
    std::fs::write(&file, values)?;
    let file = file.to_string_lossy();
    context.helm().install("web", package.path.as_ref(), &["--server-side=false", "--values", &file]).await?;
    let object = context.get::<K>("web").await?;
    let mut entries = object.managed_fields().to_vec();
    for entry in entries.iter_mut().filter(|entry| entry.manager.as_deref() == Some("helm")) {
        entry.manager = Some(CONTROLLER.to_owned());
    }
    let patch = Patch::Merge(json!({"metadata": {"managedFields": entries}}));
    context.api::<K>().patch("web", &PatchParams::default(), &patch).await?;
    let writers = writers(&context.get::<K>("web").await?);
    ensure!(writers.contains(&format!("{CONTROLLER} Update")), "the case is not set up: {writers:?}");
    Ok(())
}

/// Who has written an object, other than its status.
fn writers(object: &impl kube::ResourceExt) -> Vec<String> {
    let entries = object.managed_fields().iter().filter(|entry| entry.subresource.is_none());
    let named = entries.map(|entry| {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{} {}", part(&entry.manager), part(&entry.operation))
    });
    named.collect()
}

async fn keys(context: &Context) -> Result<Vec<String>, CaseError> {
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    Ok(data.into_iter().map(|(key, value)| format!("{key}={value}")).collect())
}

/// Upgrades, and expects that one server-side revision is made and the object has this data.
async fn upgraded(
    context: &Context,
    package: &Package,
    values: &str,
    expected: &[&str],
) -> Result<(), CaseError> {
    let before = context.observed("web").await?.revision;
    let state = context.applied(context.upgrade("web", package, values).with(prefer)).await?;
    ensure!(state.revision == before + 1, "revision {before} was followed by {}", state.revision);
    ensure!(state.method() == ApplyMethod::ServerSide, "applied {}", state.method().as_str_name());
    let found = keys(context).await?;
    ensure!(found == expected, "with {values} the object has {found:?}, expected {expected:?}");
    Ok(())
}

async fn fields(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&data())?;
    inherited::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1", "c": "1"}}"#).await?;
    upgraded(context, &package, r#"{"data": {"a": "2", "b": "1"}}"#, &["a=2", "b=1"]).await?;
    let found = writers(&context.get::<ConfigMap>("web").await?);
    ensure!(found.iter().all(|writer| !writer.ends_with("Update")), "after the first upgrade: {found:?}");
    upgraded(context, &package, r#"{"data": {"a": "2"}}"#, &["a=2"]).await
}

async fn list_items(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&containers())?;
    let values = r#"{"containers": ["one", "two", "three"], "env": [{"name": "A", "value": "1"}]}"#;
    inherited::<Deployment>(context, &package, values).await?;
    for (values, expected) in [(r#"{"containers": ["one", "two"]}"#, 2), (r#"{"containers": ["one"]}"#, 1)] {
        context.applied(context.upgrade("web", &package, values).with(prefer)).await?;
        let spec = context.get::<Deployment>("web").await?.spec.and_then(|spec| spec.template.spec);
        let found = spec.unwrap_or_default().containers;
        ensure!(found.len() == expected, "with {values} there are {found:?}");
        ensure!(found.iter().all(|container| container.env.is_none()), "env is left: {found:?}");
    }
    Ok(())
}

async fn others(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&data())?;
    inherited::<ConfigMap>(context, &package, r#"{"data": {"a": "1"}}"#).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"by-hand": "1"}})).await?;
    let namesake = Patch::Merge(json!({"data": {"injected": "1"}}));
    let parameters = PatchParams { field_manager: Some(CONTROLLER.to_owned()), ..PatchParams::default() };
    context.api::<ConfigMap>().patch("web", &parameters, &namesake).await?;
    for a in ["2", "3"] {
        let expected = format!("a={a}");
        let values = format!(r#"{{"data": {{"a": "{a}"}}}}"#);
        upgraded(context, &package, &values, &[&expected, "by-hand=1", "injected=1"]).await?;
    }
    let found = writers(&context.get::<ConfigMap>("web").await?);
    ensure!(found.contains(&"someone-else Update".to_owned()), "whose field is by-hand now? {found:?}");
    Ok(())
}

async fn drift(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&data())?;
    inherited::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"a": "by hand"}})).await?;
    upgraded(context, &package, r#"{"data": {"a": "1", "b": "2"}}"#, &["a=1", "b=2"]).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"a": "by hand"}})).await?;
    let request = context.upgrade("web", &package, r#"{"data": {"a": "1", "b": "3"}}"#).with(prefer);
    context.refused(request, FailureCategory::Conflict).await.map(drop)
}

async fn failed(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&data())?;
    inherited::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    // Objects are applied in the order of their kinds, and this one is refused.
    let broken = "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: -1}]}\n";
    let refused = context.pack(&data().template("broken.yaml", broken))?;
    let request = context.upgrade("web", &refused, r#"{"data": {"a": "2", "b": "1"}}"#).with(prefer);
    context.refused(request, FailureCategory::Rejected).await?;
    upgraded(context, &package, r#"{"data": {"a": "3"}}"#, &["a=3"]).await
}

async fn crash(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&data())?;
    inherited::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    let tool = context.own_tool();
    let held = context.pack(&data().hook(&Hook::new("held", "pre-upgrade", HookEnd::Never)))?;
    let request = context.upgrade("web", &held, r#"{"data": {"a": "2", "b": "1"}}"#).with(prefer);
    let mut running = tool.begin_apply(request).await?;
    running.until(StepKind::Applying).await?;
    tool.supervisor().kill().await;
    running.broken().await?;
    let request = recovering(context.upgrade("web", &package, r#"{"data": {"a": "3"}}"#)).with(prefer);
    context.applied(request).await?;
    let found = keys(context).await?;
    ensure!(found == ["a=3"], "after recovering the object has {found:?}");
    Ok(())
}

async fn impossible(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&containers())?;
    let twice = |value: &str| {
        let env = format!(r#"[{{"name": "A", "value": "1"}}, {{"name": "A", "value": "{value}"}}]"#);
        format!(r#"{{"containers": ["one"], "env": {env}}}"#)
    };
    inherited::<Deployment>(context, &package, &twice("2")).await?;
    let request = context
        .upgrade("web", &package, &twice("3"))
        .with(|options| options.method = ApplyMethod::ServerSide.into());
    context.refused(request, FailureCategory::Rejected).await?;
    let state = context.applied(context.upgrade("web", &package, &twice("3")).with(prefer)).await?;
    ensure!(state.method() == ApplyMethod::ClientSide, "applied {}", state.method().as_str_name());
    let text = r#"{"containers": ["one"]}"#;
    context.applied(context.upgrade("web", &package, text).with(prefer)).await.map(drop)
}
