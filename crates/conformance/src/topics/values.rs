//! How values are parsed, merged and rejected.

use chandler_core::digest::Digest;
use chandler_tool::generated::tool::{FailureCategory, Values, ValuesReuse};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    Case, CaseError,
    context::Context,
    package::TestPackage,
    request::{self, RequestExt as _, text},
    tool::End,
};

pub const CASES: &[Case] = &[
    case!(
        "values/canonical",
        [],
        canonical,
        "Equal values have the same canonical JSON and digest, and numbers keep their type."
    ),
    case!(
        "values/layers",
        [],
        layers,
        "Later layers override earlier ones, and both override the package's default values."
    ),
    case!(
        "values/reuse",
        [],
        reuse,
        "An upgrade starts from the default values; one that is to reuse values does so or is rejected."
    ),
    case!("values/invalid", [], invalid, "Values that are not a JSON object are INVALID_VALUES."),
    case!("values/secret", [], secret, "A failure to read values does not repeat a value."),
    case!("values/rejected", [], rejected, "A failure to apply an object does not repeat a value."),
];

const SECRET: &str = "canary-7f3a";

fn layer(content: &str) -> Values {
    request::json(content)
}

async fn canonical(context: &Context) -> Result<(), CaseError> {
    let same = [
        (r#"{"a":1,"b":"on"}"#, vec![layer(r#"{"b": "on", "a": 1}"#)]),
        (r#"{"a":1,"b":"on"}"#, vec![layer(r#"{"a": 0}"#), layer(r#"{"b": "on", "a": 1}"#)]),
        (r#"{"size":9007199254740991}"#, vec![layer(r#"{"size": 9007199254740991}"#)]),
        (r#"{"size":1.5}"#, vec![layer(r#"{"size": 1.5}"#)]),
        (r#"{"s":"0755"}"#, vec![layer(r#"{"s": "0755"}"#)]),
        (r#"{"a":{"b":[1,"<&>"],"c":true}}"#, vec![layer(r#"{"a": {"c": true, "b": [1, "<&>"]}}"#)]),
        ("{}", vec![layer("{}")]),
        ("{}", vec![text("")]),
        ("{}", vec![]),
    ];
    for (expected, values) in same {
        let got = context.tool.canonicalize(values.clone()).await?;
        let got = got.map_err(|failure| CaseError::Violation(format!("{values:?}: {}", failure.message)))?;
        let (got, digest) = (String::from_utf8_lossy(&got.json).into_owned(), got.digest);
        ensure!(got == expected, "{values:?} became {got}, expected {expected}");
        ensure!(digest == Digest::of(expected).to_string(), "the digest of {got} is {digest}");
    }
    Ok(())
}

/// Checks the values that the package was rendered with.
async fn rendered_with(context: &Context, expected: &str) -> Result<(), CaseError> {
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    let rendered = data.get("values").cloned().unwrap_or_default();
    ensure!(rendered == expected, "the package was rendered with {rendered}, expected {expected}");
    Ok(())
}

async fn layers(context: &Context) -> Result<(), CaseError> {
    let package = TestPackage::config().default_values(json!({"size": 0, "default": true}));
    let mut request = context.install("web", &context.pack(&package).await?, json!({}));
    request.values =
        vec![layer(r#"{"size": 1, "first": true}"#), layer(r#"{"size": 9007199254740991, "second": "x"}"#)];
    let given = context.tool.canonicalize(request.values.clone()).await?;
    let given = given.map_err(|failure| CaseError::Violation(failure.message))?;
    let state = context.apply(request).await?;
    ensure!(
        state.values_digest == given.digest,
        "the release has the values digest {}, Canonicalize returned {}",
        state.values_digest,
        given.digest
    );
    rendered_with(context, r#"{"default":true,"first":true,"second":"x","size":9007199254740991}"#).await
}

async fn reuse(context: &Context) -> Result<(), CaseError> {
    let old = context.pack(&TestPackage::config().default_values(json!({"default": "old"}))).await?;
    let new = TestPackage::config().version("2.0.0").default_values(json!({"default": "new"}));
    let new = context.pack(&new).await?;
    context.apply(context.install("web", &old, json!({"a": 1}))).await?;
    context.apply(context.upgrade("web", &new, json!({"b": 2}))).await?;
    rendered_with(context, r#"{"b":2,"default":"new"}"#).await?;
    context.apply(context.upgrade("web", &new, json!({}))).await?;
    rendered_with(context, r#"{"default":"new"}"#).await?;
    context.remove(context.removal("web")).await?;

    let expected = [
        (ValuesReuse::Reuse, r#"{"a":1,"b":2,"default":"old"}"#),
        (ValuesReuse::ResetThenReuse, r#"{"a":1,"b":2,"default":"new"}"#),
    ];
    for (reuse, expected) in expected {
        context.apply(context.install("web", &old, json!({"a": 1}))).await?;
        let request = context.upgrade("web", &new, json!({"b": 2}));
        let request = request.with(|options| options.values_reuse = reuse.into());
        let digest = request.input_digest.clone();
        let ended = context.tool.apply(request).await?;
        if matches!(ended.end, End::Failure(_)) {
            context.check_failed(ended, FailureCategory::InvalidValues).await?;
        } else {
            context.check_applied(ended, &digest).await?;
            rendered_with(context, expected).await.map_err(|error| error.within(reuse.as_str_name()))?;
        }
        context.remove(context.removal("web")).await?;
    }
    Ok(())
}

async fn invalid(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    for wrong in [r#"{"a": [1"#, r#"["a", "b"]"#, "1", ""] {
        let canonical = context.tool.canonicalize(vec![layer(wrong)]).await?;
        let category = canonical.map_or_else(|failure| failure.category(), |_| FailureCategory::Unspecified);
        ensure!(
            category == FailureCategory::InvalidValues,
            "Canonicalize of {wrong:?}: {}",
            category.as_str_name()
        );
        let mut request = context.install("web", &package, json!({}));
        request.values = vec![layer(wrong)];
        context
            .apply_fails(request, FailureCategory::InvalidValues)
            .await
            .map_err(|error| error.within(wrong))?;
    }
    context.agree_absent("web").await?;
    let state = context.apply(context.install("web", &package, json!({"size": 1}))).await?;
    let mut request = context.upgrade("web", &package, json!({}));
    request.values.push(layer("["));
    context.apply_fails(request, FailureCategory::InvalidValues).await?;
    context.agree(&state).await
}

async fn secret(context: &Context) -> Result<(), CaseError> {
    let package = context.pack(&TestPackage::config()).await?;
    let wrong = [
        layer(SECRET),
        layer(&format!("\"{SECRET}\"")),
        layer(&format!("[\"{SECRET}\"]")),
        layer(&format!("{{\"a\": {SECRET}}}")),
        layer(&format!("{{\"a\": \"{SECRET}\"")),
        layer(&format!("{{\"{SECRET}\"}}")),
        text(&format!("{{\"a\": [\"{SECRET}\"")),
        text(&format!("[\"{SECRET}\"]")),
        text(&format!("\0{SECRET}")),
    ];
    for layer in wrong {
        let mut request = context.install("web", &package, json!({}));
        request.values = vec![layer.clone()];
        let ended = context.tool.apply(request).await?;
        let failure = ended
            .failure(FailureCategory::InvalidValues)
            .map_err(|error| error.within(&format!("{layer:?}")))?;
        ensure!(!failure.message.contains(SECRET), "for {layer:?} the message is: {}", failure.message);
        let answer = context.tool.canonicalize(vec![layer.clone()]).await?;
        let repeated = answer.is_err_and(|failure| failure.message.contains(SECRET));
        ensure!(!repeated, "Canonicalize repeats a value of {layer:?}");
    }
    Ok(())
}

async fn rejected(context: &Context) -> Result<(), CaseError> {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: $(release)}\nspec:\n  ports:\n  - port: 80\n    \
                   protocol: $(values)\n";
    let number = "apiVersion: v1\nkind: Service\nmetadata: {name: $(release)}\nspec:\n  ports:\n  - port: 80\n    \
                  nodePort: $(values)\n";
    for (what, manifest) in [("a wrong value", service), ("a wrong type", number)] {
        let package = context.pack(&TestPackage::new("rejected").manifest(manifest)).await?;
        let request = context.install("web", &package, json!({"password": SECRET}));
        let failure = context
            .apply_fails(request, FailureCategory::Rejected)
            .await
            .map_err(|error| error.within(what))?;
        ensure!(!failure.message.contains(SECRET), "{what}: the message is: {}", failure.message);
        context.remove(context.removal("web")).await?;
    }
    Ok(())
}
