//! The input digest: which inputs created which revision.

use chandler_core::digest::{Digest, InputDigest, InputMark};
use chandler_tool::generated::tool::Package;
use serde_json::json;

use crate::{Case, CaseError, context::Context, hold::Hold, package::TestPackage};

pub const CASES: &[Case] = &[
    case!(
        "marks/same-write",
        [],
        same_write,
        "The write that creates a revision's record contains the input digest."
    ),
    case!("marks/survive", [], survive, "Another process reads the input digest of a revision."),
    case!(
        "marks/adopted",
        [],
        adopted,
        "Observe returns the input digest that Chandler writes onto a record, unless it names another revision."
    ),
];

/// Checks the input digest of the newest record.
pub async fn has_mark(context: &Context, digest: &str, revision: u32) -> Result<(), CaseError> {
    let record = context.newest_record("web").await?;
    ensure!(
        record.revision == revision && record.input_digest() == digest,
        "revision {revision} was created from {digest}, the newest record is {record:?}"
    );
    Ok(())
}

async fn same_write(context: &Context) -> Result<(), CaseError> {
    let (tool, package) = (context.own_tool(), context.pack(&TestPackage::held()).await?);
    let hold = Hold::start(context).await?;
    let request = context.install("web", &package, json!({}));
    let (id, digest) = (request.operation_id.clone(), request.input_digest.clone());
    let _running = tool.begin_apply(request).await?;
    hold.until_held(1).await?;
    has_mark(context, &digest, 1).await?;
    let state = context.observe_existing("web").await?;
    ensure!(state.input_digest == digest, "Observe returns {:?} for a pending revision", state.input_digest);
    tool.cancel(&id).await?;
    hold.release().await
}

async fn installed(context: &Context) -> Result<(Package, String), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let request = context.install("web", &package, json!({"size": 1}));
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    has_mark(context, &digest, 1).await?;
    Ok((package, digest))
}

async fn survive(context: &Context) -> Result<(), CaseError> {
    let (package, digest) = installed(context).await?;
    let observed = context.own_tool().observe(context.target(), context.release("web"), 0).await?;
    let observed = observed.ok().flatten().unwrap_or_default();
    ensure!(
        observed.input_digest == digest,
        "another process reads {:?}, expected is {digest}",
        observed.input_digest
    );
    let request = context.upgrade("web", &package, json!({"size": 2}));
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    has_mark(context, &digest, 2).await
}

async fn adopted(context: &Context) -> Result<(), CaseError> {
    let (package, _) = installed(context).await?;
    let text = Digest::of("adopted");
    let text = &text.hex()[..40];
    let digest = InputDigest::parse(text).ok_or_else(|| CaseError::Host("a wrong digest".into()))?;
    for (revision, expected) in [(1, text), (7, "")] {
        context.set_mark("web", 1, &InputMark { digest: digest.clone(), revision }).await?;
        let state = context.observe_existing("web").await?;
        ensure!(
            state.input_digest == expected,
            "the record's label names revision {revision}, and Observe returns {:?}",
            state.input_digest
        );
        context.agree(&state).await?;
    }
    let request = context.upgrade("web", &package, json!({"size": 2}));
    let digest = request.input_digest.clone();
    context.apply(request).await?;
    has_mark(context, &digest, 2).await
}
