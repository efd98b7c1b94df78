//! A CRD of `Thing`s and objects of this kind, for packages that contain them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::json;

use super::{CaseError, context::Context, objects::eventually, request::REPLACE_UNSAFE};

/// Returns the API group of a case. Cases run in parallel, and CRDs have no namespace.
pub fn group(context: &Context) -> String {
    format!("{}.example.invalid", context.namespace)
}

/// Returns a CRD of `Thing`s in a group whose spec has these fields.
pub fn definition(group: &str, fields: &[&str]) -> String {
    let fields: Vec<_> = fields.iter().map(|field| format!("{field}: {{type: string}}")).collect();
    let fields = fields.join(", ");
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: things, singular: thing, kind: Thing}}\n  \
         versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
         type: object\n        properties:\n          spec: {{type: object, properties: {{{fields}}}}}\n"
    )
}

/// Returns the CRD with the annotation that allows to replace any other.
pub fn allowing(definition: &str) -> String {
    let allowed = format!("metadata: {{annotations: {{{REPLACE_UNSAFE}: \"true\"}}, ");
    definition.replace("metadata: {", &allowed)
}

/// Returns a `Thing` that uses a field.
pub fn thing(group: &str, name: &str, field: &str) -> String {
    format!("apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: {name}}}\nspec: {{{field}: x}}\n")
}

/// Returns the API of the `Thing`s of a case.
pub fn things(context: &Context) -> Api<DynamicObject> {
    context.dynamic(&ApiResource::from_gvk(&GroupVersionKind::gvk(&group(context), "v1", "Thing")))
}

/// Returns the API of all CRDs.
pub fn definitions(context: &Context) -> Api<CustomResourceDefinition> {
    Api::all(context.environment.client.clone())
}

/// Creates the CRD of a case without the tool, and waits until the cluster serves it.
pub async fn create_definition(context: &Context) -> Result<(), CaseError> {
    let group = group(context);
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
    definitions(context).create(&PostParams::default(), &definition).await?;
    eventually("the condition Established", || async {
        let status = definitions(context).get(&name).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    })
    .await
}

/// Returns the CRD of a case, if it exists.
pub async fn find_definition(context: &Context) -> Result<Option<CustomResourceDefinition>, CaseError> {
    Ok(definitions(context).get_opt(&format!("things.{}", group(context))).await?)
}
