//! Comparisons of objects with the newest revision, and their correction.

mod fields;
mod objects;

use chandler_tool::generated::tool::{
    CompareRequest, ComparisonOutcome, ObjectComparison, ReleaseState, StepKind,
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    Case, CaseError,
    context::Context,
    package::{CONFIG, RELEASE, TestPackage},
    tool::describe,
};

pub const CASES: &[Case] = &[
    case!(
        "drift/in-sync",
        [Compare],
        objects::in_sync,
        "Objects that no other client has changed are IN_SYNC, also after an upgrade, and a comparison writes nothing."
    ),
    case!(
        "drift/changed",
        [Compare],
        objects::changed,
        "A changed field makes an object DRIFTED, is named as JSON pointer without its value, and stays as it is."
    ),
    case!(
        "drift/corrected",
        [Compare],
        objects::corrected,
        "A correction restores the changed field, creates no revision, and changes no other object."
    ),
    case!(
        "drift/missing",
        [Compare],
        objects::missing,
        "A deleted object is MISSING, and a correction creates it as an object of the release."
    ),
    case!(
        "drift/requested",
        [Compare],
        objects::requested,
        "Only the requested objects are compared and corrected, and one that the revision does not have is UNKNOWN."
    ),
    case!(
        "drift/excluded",
        [Compare],
        objects::excluded,
        "An object with the annotation chandler.dev/drift: ignore, on the cluster or in the package, is IGNORED."
    ),
    case!(
        "drift/job",
        [Compare],
        objects::job,
        "A Job is IGNORED, also if it does not exist: creating it again would run it again."
    ),
    case!(
        "drift/other-owner",
        [Compare],
        objects::other_owner,
        "An object that belongs to another release is UNKNOWN, and is not changed."
    ),
    case!(
        "drift/revision",
        [Compare],
        objects::revision,
        "Objects of a revision that is not the newest, or is not deployed, are not compared: CONFLICT."
    ),
    case!(
        "drift/unmanaged",
        [Compare],
        fields::unmanaged,
        "Fields that the package does not set are not compared, and a correction keeps them."
    ),
    case!(
        "drift/scale",
        [Compare],
        fields::scale,
        "Replicas that were written through the subresource scale are no difference, and a correction keeps them."
    ),
    case!(
        "drift/ignored",
        [Compare],
        fields::ignored,
        "Fields of a rule are no difference in the objects of this rule, and a correction keeps them."
    ),
    case!(
        "drift/secret",
        [Compare],
        fields::secret,
        "Drift of a Secret names its keys and no values, and is corrected, also if the package gives them as text."
    ),
    case!(
        "drift/field-conflicts",
        [Compare, ServerSideApply],
        fields::field_conflicts,
        "With IGNORE_FIELDS, fields of other field managers are no difference."
    ),
    case!(
        "drift/bundle",
        [Compare, Manifests],
        objects::bundle,
        "The objects of a bundle are compared, too."
    ),
];

/// A second object, which no case changes.
const OTHER: &str = "other";

/// Installs a package with the ConfigMap and the Deployment `web` and the ConfigMap `other`.
async fn install(context: &Context) -> Result<ReleaseState, CaseError> {
    let other = CONFIG.replace(RELEASE, OTHER);
    let package = TestPackage::deployment(1).manifest(CONFIG).manifest(other);
    let package = context.pack(&package).await?;
    context.apply(context.install("web", &package, json!({"size": 1}))).await
}

/// Compares without correcting.
pub(super) async fn compare(
    context: &Context,
    state: &ReleaseState,
) -> Result<Vec<ObjectComparison>, CaseError> {
    run(context, context.comparison("web", state.revision)).await
}

/// Compares and corrects.
pub(super) async fn correct(
    context: &Context,
    state: &ReleaseState,
) -> Result<Vec<ObjectComparison>, CaseError> {
    run(context, CompareRequest { correct: true, ..context.comparison("web", state.revision) }).await
}

async fn run(context: &Context, request: CompareRequest) -> Result<Vec<ObjectComparison>, CaseError> {
    let ended = context.tool.compare(request).await?;
    let steps = describe(&ended.steps);
    ensure!(
        ended.steps.iter().any(|step| step.kind() == StepKind::Comparing),
        "no step COMPARING in {steps}"
    );
    ended.comparison()
}

/// Returns the result for an object.
fn of<'a>(
    compared: &'a [ObjectComparison],
    kind: &str,
    name: &str,
) -> Result<&'a ObjectComparison, CaseError> {
    let found = compared
        .iter()
        .find(|one| one.object.as_ref().is_some_and(|object| object.kind == kind && object.name == name));
    found.ok_or_else(|| CaseError::Violation(format!("{kind} {name} is not in {compared:?}")))
}

/// Checks the result for an object.
pub(super) fn expect(
    compared: &[ObjectComparison],
    (kind, name): (&str, &str),
    outcome: ComparisonOutcome,
    paths: &[&str],
) -> Result<(), CaseError> {
    let found = of(compared, kind, name)?;
    ensure!(
        found.outcome() == outcome && found.paths == paths,
        "expected {} {paths:?}, got {found:?}",
        outcome.as_str_name()
    );
    Ok(())
}

/// Checks that all objects except one are in sync.
pub(super) fn others_in_sync(
    compared: &[ObjectComparison],
    (kind, name): (&str, &str),
) -> Result<(), CaseError> {
    for one in compared {
        let object = one.object.clone().unwrap_or_default();
        ensure!(
            (object.kind == kind && object.name == name) || one.outcome() == ComparisonOutcome::InSync,
            "an object that no other client has changed is {one:?}"
        );
    }
    Ok(())
}

/// Returns the names and resource versions of the records.
async fn records(context: &Context) -> Result<Vec<(String, Option<String>)>, CaseError> {
    let selected = ListParams::default().labels(&context.record_selector("web")?);
    let listed = context.record_api()?.list_metadata(&selected).await?;
    Ok(listed.iter().map(|record| (record.name_any(), record.resource_version())).collect())
}

/// Returns the value of the ConfigMap `web`.
pub(super) async fn value(context: &Context) -> Result<String, CaseError> {
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    Ok(data.get("values").cloned().unwrap_or_default())
}

pub(super) async fn change_value(context: &Context, text: &str) -> Result<(), CaseError> {
    context.patch::<ConfigMap>("web", &json!({"data": {"values": text}})).await
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// Changes the image of the Deployment `web` as a user does.
async fn change_image(context: &Context) -> Result<(), CaseError> {
    let containers = json!([{"name": "main", "image": "example.invalid/main:by-hand"}]);
    strategic(context, &json!({"spec": {"template": {"spec": {"containers": containers}}}})).await
}

async fn strategic(context: &Context, patch: &Value) -> Result<(), CaseError> {
    let params = PatchParams { field_manager: Some("someone-else".to_owned()), ..PatchParams::default() };
    context.api::<Deployment>().patch("web", &params, &Patch::Strategic(patch)).await?;
    Ok(())
}

async fn image(context: &Context) -> Result<Option<String>, CaseError> {
    let spec = context.get::<Deployment>("web").await?.spec.unwrap_or_default();
    let containers = spec.template.spec.unwrap_or_default().containers;
    Ok(containers.into_iter().next().and_then(|container| container.image))
}
