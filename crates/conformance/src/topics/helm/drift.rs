//! Drift of objects that Helm applies in another way.

use chandler_tool::generated::tool::{ApplyMethod, ComparisonOutcome};
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    package::TestPackage,
    request::RequestExt as _,
    topics::drift::{change_value, compare, correct, expect, others_in_sync, value},
};

pub const CASES: &[Case] = &[case!(
    "helm/drift/client-side",
    [HelmRecords, Compare],
    client_side,
    "Objects that were applied client-side are compared and corrected, too."
)];

async fn client_side(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({"size": 1}));
    let request = request.with(|options| options.method = ApplyMethod::ClientSide.into());
    let state = context.apply(request).await?;
    let good = value(context).await?;
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    change_value(context, "changed by hand").await?;
    let compared = correct(context, &state).await?;
    expect(&compared, ("ConfigMap", "web"), ComparisonOutcome::Corrected, &["/data/values"])?;
    ensure!(value(context).await? == good, "the object was not corrected");
    others_in_sync(&compare(context, &state).await?, ("", ""))?;
    // The next upgrade finds the object as the release has left it.
    let request = context.upgrade("web", &package, json!({"size": 2}));
    context.apply(request.with(|options| options.method = ApplyMethod::ClientSide.into())).await.map(drop)
}
