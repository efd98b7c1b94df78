//! APIs that the cluster serves.

use chandler_tool::generated::tool::FailureCategory;
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    custom_resources::{create_definition, group, thing},
    package::{RELEASE, TestPackage},
};

pub const CASES: &[Case] = &[case!(
    "apis/added",
    [],
    added,
    "An object of an unknown kind is REJECTED, and is applied once the cluster serves its kind."
)];

async fn added(context: &Context) -> Result<(), CaseError> {
    let thing = thing(&group(context), RELEASE, "one");
    let package = context.pack(&TestPackage::config().manifest(thing)).await?;
    let request = context.install("web", &package, json!({}));
    let failure = context.apply_fails(request, FailureCategory::Rejected).await?;
    ensure!(failure.message.contains("Thing"), "the message does not name the kind: {}", failure.message);

    create_definition(context).await?;
    let request = match context.observe("web").await? {
        Some(_) => context.upgrade("web", &package, json!({})),
        None => context.install("web", &package, json!({})),
    };
    context.apply(request).await.map(drop)
}
