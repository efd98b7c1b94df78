//! APIs that the cluster serves.

use chandler_tool::generated::tool::FailureCategory;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{Case, CaseError, context::Context, objects::eventually, package::TestPackage};

pub const CASES: &[Case] = &[case!(
    "apis/added",
    [],
    added,
    "An object of an unknown kind is REJECTED, and is applied once the cluster serves its kind."
)];

async fn added(context: &Context) -> Result<(), CaseError> {
    let group = format!("{}.example.invalid", context.namespace);
    let thing =
        format!("apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: $(release)}}\nspec: {{one: x}}\n");
    let package = context.pack(&TestPackage::config().manifest(thing)).await?;
    let request = context.install("web", &package, json!({}));
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    ensure!(failure.message.contains("Thing"), "the message does not name the kind: {}", failure.message);

    let name = format!("things.{group}");
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .map_err(|error| CaseError::Host(error.into()))?;
    let definitions: Api<CustomResourceDefinition> = Api::all(context.environment.client.clone());
    definitions.create(&PostParams::default(), &definition).await?;
    eventually("the condition Established", || async {
        let status = definitions.get(&name).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    })
    .await?;
    let request = match context.observe("web").await? {
        Some(_) => context.upgrade("web", &package, json!({})),
        None => context.install("web", &package, json!({})),
    };
    context.apply(request).await.map(drop)
}
