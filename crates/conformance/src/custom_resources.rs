//! A CRD of `Thing`s and objects of this kind, for packages that contain them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::DynamicObject, core::GroupVersionKind, discovery::ApiResource};

use super::{CaseError, context::Context, request::REPLACE_UNSAFE};

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

/// Returns the CRD of a case, if it exists.
pub async fn find_definition(context: &Context) -> Result<Option<CustomResourceDefinition>, CaseError> {
    Ok(definitions(context).get_opt(&format!("things.{}", group(context))).await?)
}
