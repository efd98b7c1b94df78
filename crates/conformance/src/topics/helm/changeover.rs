//! The migration of releases that were installed with client-side apply to server-side apply.

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
    Case, CaseError,
    chart::{CONFIG, Chart, Hook, HookEnd},
    context::Context,
    request::{RequestExt as _, recovering},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/changeover/fields",
        [HelmRecords, ServerSideApply],
        fields,
        "The first upgrade is server-side and removes fields that the chart no longer has; so do later ones."
    ),
    case!(
        "helm/changeover/list-items",
        [HelmRecords, ServerSideApply],
        list_items,
        "A list item is removed together with the defaults that the API server added to it."
    ),
    case!(
        "helm/changeover/others",
        [HelmRecords, ServerSideApply],
        others,
        "Fields of other managers stay unchanged, also those of another program with the same manager name."
    ),
    case!(
        "helm/changeover/drift",
        [HelmRecords, ServerSideApply],
        drift,
        "The migrating upgrade overwrites other managers, as client-side apply does; the next one is a CONFLICT."
    ),
    case!(
        "helm/changeover/failed",
        [HelmRecords, ServerSideApply],
        failed,
        "The upgrade after a failed migration succeeds."
    ),
    case!(
        "helm/changeover/crash",
        [HelmRecords, ServerSideApply],
        crash,
        "A migration that was interrupted can be recovered."
    ),
    case!(
        "helm/changeover/impossible",
        [HelmRecords, ServerSideApply],
        impossible,
        "PREFER_SERVER_SIDE keeps client-side apply for an object that cannot be applied server-side."
    ),
    case!(
        "helm/changeover/foreign",
        [HelmRecords, ServerSideApply],
        foreign,
        "An object that the record lists, but that belongs to another release by now, is neither migrated nor deleted."
    ),
];

/// The default field manager of a controller that uses the Helm SDK.
const CONTROLLER: &str = "manager";

/// The values are the data.
const DATA: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data: {{ .Values.data | toJson }}
";

/// Each item of the values is a container, to which the API server adds defaults.
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

/// Installs a release as a controller with an older Helm SDK does.
async fn install_client_side<K>(context: &Context, package: &Package, values: &str) -> Result<(), CaseError>
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
    ensure!(
        writers.contains(&format!("{CONTROLLER} Update")),
        "the suite did not set up the field manager: {writers:?}"
    );
    Ok(())
}

/// Returns the managers and operations of the managed fields, without those of the status.
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

/// Upgrades, and checks that it is server-side and that the object has this data.
async fn upgrade_to(
    context: &Context,
    package: &Package,
    values: &str,
    expected: &[&str],
) -> Result<(), CaseError> {
    let before = context.observe_existing("web").await?.revision;
    let state = context.apply(context.upgrade("web", package, values).with(prefer)).await?;
    ensure!(state.revision == before + 1, "revision {before} was followed by {}", state.revision);
    ensure!(state.method() == ApplyMethod::ServerSide, "applied {}", state.method().as_str_name());
    let found = keys(context).await?;
    ensure!(found == expected, "with {values} the object has {found:?}, expected {expected:?}");
    Ok(())
}

async fn fields(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&data())?;
    install_client_side::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1", "c": "1"}}"#)
        .await?;
    upgrade_to(context, &package, r#"{"data": {"a": "2", "b": "1"}}"#, &["a=2", "b=1"]).await?;
    let found = writers(&context.get::<ConfigMap>("web").await?);
    ensure!(found.iter().all(|writer| !writer.ends_with("Update")), "after the first upgrade: {found:?}");
    upgrade_to(context, &package, r#"{"data": {"a": "2"}}"#, &["a=2"]).await
}

async fn list_items(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&containers())?;
    let values = r#"{"containers": ["one", "two", "three"], "env": [{"name": "A", "value": "1"}]}"#;
    install_client_side::<Deployment>(context, &package, values).await?;
    for (values, expected) in [(r#"{"containers": ["one", "two"]}"#, 2), (r#"{"containers": ["one"]}"#, 1)] {
        context.apply(context.upgrade("web", &package, values).with(prefer)).await?;
        let spec = context.get::<Deployment>("web").await?.spec.and_then(|spec| spec.template.spec);
        let found = spec.unwrap_or_default().containers;
        ensure!(found.len() == expected, "with {values} there are {found:?}");
        ensure!(found.iter().all(|container| container.env.is_none()), "env is left: {found:?}");
    }
    Ok(())
}

async fn others(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&data())?;
    install_client_side::<ConfigMap>(context, &package, r#"{"data": {"a": "1"}}"#).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"by-hand": "1"}})).await?;
    let namesake = Patch::Merge(json!({"data": {"injected": "1"}}));
    let parameters = PatchParams { field_manager: Some(CONTROLLER.to_owned()), ..PatchParams::default() };
    context.api::<ConfigMap>().patch("web", &parameters, &namesake).await?;
    for a in ["2", "3"] {
        let expected = format!("a={a}");
        let values = format!(r#"{{"data": {{"a": "{a}"}}}}"#);
        upgrade_to(context, &package, &values, &[&expected, "by-hand=1", "injected=1"]).await?;
    }
    let found = writers(&context.get::<ConfigMap>("web").await?);
    ensure!(
        found.contains(&"someone-else Update".to_owned()),
        "the field by-hand has lost its manager: {found:?}"
    );
    Ok(())
}

async fn drift(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&data())?;
    install_client_side::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"a": "by hand"}})).await?;
    upgrade_to(context, &package, r#"{"data": {"a": "1", "b": "2"}}"#, &["a=1", "b=2"]).await?;
    context.patch::<ConfigMap>("web", &json!({"data": {"a": "by hand"}})).await?;
    let request = context.upgrade("web", &package, r#"{"data": {"a": "1", "b": "3"}}"#).with(prefer);
    context.apply_fails(request, FailureCategory::Conflict).await.map(drop)
}

async fn failed(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&data())?;
    install_client_side::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    // Objects are applied in the order of their kinds, and this one is rejected.
    let broken = "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: -1}]}\n";
    let rejected = context.pack_chart(&data().template("broken.yaml", broken))?;
    let request = context.upgrade("web", &rejected, r#"{"data": {"a": "2", "b": "1"}}"#).with(prefer);
    context.apply_fails(request, FailureCategory::Rejected).await?;
    upgrade_to(context, &package, r#"{"data": {"a": "3"}}"#, &["a=3"]).await
}

async fn crash(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&data())?;
    install_client_side::<ConfigMap>(context, &package, r#"{"data": {"a": "1", "b": "1"}}"#).await?;
    let tool = context.own_tool();
    let held = context.pack_chart(&data().hook(&Hook::new("held", "pre-upgrade", HookEnd::Never)))?;
    let request = context.upgrade("web", &held, r#"{"data": {"a": "2", "b": "1"}}"#).with(prefer);
    let mut running = tool.begin_apply(request).await?;
    running.until_step(StepKind::Applying).await?;
    tool.supervisor().kill();
    running.interrupted().await?;
    let request = recovering(context.upgrade("web", &package, r#"{"data": {"a": "3"}}"#)).with(prefer);
    context.apply(request).await?;
    let found = keys(context).await?;
    ensure!(found == ["a=3"], "after recovering the object has {found:?}");
    Ok(())
}

async fn impossible(context: &Context) -> Result<(), CaseError> {
    let package = context.pack_chart(&containers())?;
    let twice = |value: &str| {
        let env = format!(r#"[{{"name": "A", "value": "1"}}, {{"name": "A", "value": "{value}"}}]"#);
        format!(r#"{{"containers": ["one"], "env": {env}}}"#)
    };
    install_client_side::<Deployment>(context, &package, &twice("2")).await?;
    let request = context
        .upgrade("web", &package, &twice("3"))
        .with(|options| options.method = ApplyMethod::ServerSide.into());
    context.apply_fails(request, FailureCategory::Rejected).await?;
    let state = context.apply(context.upgrade("web", &package, &twice("3")).with(prefer)).await?;
    ensure!(state.method() == ApplyMethod::ClientSide, "applied {}", state.method().as_str_name());
    let text = r#"{"containers": ["one"]}"#;
    context.apply(context.upgrade("web", &package, text).with(prefer)).await.map(drop)
}

async fn foreign(context: &Context) -> Result<(), CaseError> {
    let both = data().template("other.yaml", CONFIG.replace("{{ .Release.Name }}", "other"));
    install_client_side::<ConfigMap>(context, &context.pack_chart(&both)?, r#"{"data": {"a": "one"}}"#)
        .await?;
    let owner = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "another"}}});
    context.patch::<ConfigMap>("other", &owner).await?;
    let before = context.get::<ConfigMap>("other").await?;
    let package = context.pack_chart(&data().version("2.0.0"))?;
    context.apply(context.upgrade("web", &package, "data: {a: two}").with(prefer)).await?;
    let after = context.get::<ConfigMap>("other").await?;
    ensure!(before.resource_version() == after.resource_version(), "the object was changed");
    Ok(())
}
