//! Values by Helm's rules: YAML, merging with null, reuse, schemas.

use chandler_tool::generated::tool::{FailureCategory, ValuesReuse};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::{
    Case, CaseError,
    chart::Chart,
    context::Context,
    request::{RequestExt as _, json, text},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/values/canonical",
        [HelmRecords],
        canonical,
        "Equal YAML and JSON values have the same digest, and numbers keep their type."
    ),
    case!(
        "helm/values/layers",
        [HelmRecords],
        layers,
        "Layers are merged recursively, and null removes a default value."
    ),
    case!(
        "helm/values/reuse",
        [HelmRecords],
        reuse,
        "An upgrade starts from the default values, or reuses the previous values on request."
    ),
    case!(
        "helm/values/invalid",
        [HelmRecords],
        invalid,
        "Values that do not parse, violate the schema or do not render are INVALID_VALUES, with the place."
    ),
    case!("helm/values/secret", [HelmRecords], secret, "No failure repeats a value."),
];

async fn canonical(context: &Context) -> Result<(), CaseError> {
    let same = [
        (r#"{"a":1,"b":"on"}"#, vec![text("b: 'on'\na: 1\n")]),
        (r#"{"a":1,"b":"on"}"#, vec![text("a: 0"), json(r#"{"b": "on", "a": 1}"#)]),
        (r#"{"size":9007199254740991}"#, vec![text("size: 9007199254740991")]),
        (r#"{"size":9007199254740991}"#, vec![json(r#"{"size": 9007199254740991}"#)]),
        (r#"{"size":1.5}"#, vec![text("size: 1.5")]),
        (r#"{"s":"0755"}"#, vec![text("s: \"0755\"")]),
        ("{}", vec![text("")]),
        ("{}", vec![]),
    ];
    for (expected, values) in same {
        let got = context.tool.canonicalize(values.clone()).await?;
        let got = got.map_err(|failure| CaseError::Violation(format!("{values:?}: {}", failure.message)))?;
        let (got, digest) = (String::from_utf8_lossy(&got.json).into_owned(), got.digest);
        ensure!(got == expected, "{values:?} became {got}, expected {expected}");
        ensure!(
            digest == chandler_core::digest::Digest::of(expected).to_string(),
            "the digest of {got} is {digest}"
        );
    }
    Ok(())
}

async fn layers(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config().file("values.yaml", "gone: default\nkept: {a: 1, b: 2}\n");
    let mut request = context.install("web", &context.pack_chart(&chart)?, "");
    request.values =
        vec![text("kept: {a: 10}\nsize: 1\n"), json(r#"{"size": 9007199254740991, "gone": null}"#)];
    context.apply(request).await?;
    let seen = rendered(context).await?;
    let expected = r#"{"kept":{"a":10,"b":2},"size":9007199254740991}"#;
    ensure!(seen == expected, "the chart was rendered with {seen}, expected {expected}");
    Ok(())
}

async fn reuse(context: &Context) -> Result<(), CaseError> {
    let old = context.pack_chart(&Chart::config().file("values.yaml", "default: old\n"))?;
    let new = context.pack_chart(&Chart::config().version("2.0.0").file("values.yaml", "default: new\n"))?;
    let expected = [
        (ValuesReuse::Unspecified, r#"{"b":2,"default":"new"}"#),
        (ValuesReuse::Reuse, r#"{"a":1,"b":2,"default":"old"}"#),
        (ValuesReuse::ResetThenReuse, r#"{"a":1,"b":2,"default":"new"}"#),
    ];
    for (reuse, expected) in expected {
        context.apply(context.install("web", &old, "a: 1")).await?;
        let request =
            context.upgrade("web", &new, "b: 2").with(|options| options.values_reuse = reuse.into());
        context.apply(request).await?;
        let seen = rendered(context).await?;
        ensure!(
            seen == expected,
            "{}: the chart was rendered with {seen}, expected {expected}",
            reuse.as_str_name()
        );
        context.remove(context.removal("web")).await?;
    }
    // An upgrade without values does not reuse the previous ones.
    context.apply(context.install("web", &old, "a: 1")).await?;
    context.apply(context.upgrade("web", &old, "")).await?;
    let seen = rendered(context).await?;
    ensure!(seen == r#"{"default":"old"}"#, "an upgrade without values rendered with {seen}");
    Ok(())
}

async fn rendered(context: &Context) -> Result<String, CaseError> {
    let data = context.get::<ConfigMap>("web").await?.data.unwrap_or_default();
    Ok(data.get("values").cloned().unwrap_or_default())
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"outer": {"type": "object", "properties": {
    "size": {"type": "integer"}, "word": {"enum": ["a", "b"]}, "code": {"pattern": "^[0-9]+$"}}}}}"#;

async fn invalid(context: &Context) -> Result<(), CaseError> {
    let schema = Chart::config().file("values.schema.json", SCHEMA);
    let required = Chart::config().template("needs.yaml", "{{ required \"say who\" .Values.who }}");
    let cases = [
        ("invalid YAML", &schema, "a: [1", "line"),
        ("no mapping", &schema, "- a\n- b\n", ""),
        ("a wrong type", &schema, "outer: {size: big}", "outer"),
        ("a missing required value", &required, "", "say who"),
        ("a failing template", &Chart::config().template("f.yaml", "{{ fail \"not so\" }}"), "", "not so"),
    ];
    for (what, chart, values, hint) in cases {
        let package = context.pack_chart(chart)?;
        let request = context.install("web", &package, values);
        let failure = context
            .apply_fails(request, FailureCategory::InvalidValues)
            .await
            .map_err(|error| error.within(what))?;
        ensure!(
            failure.message.contains(hint),
            "{what}: the message does not contain {hint:?}: {}",
            failure.message
        );
    }
    context.agree_absent("web").await?;
    let good = context.pack_chart(&schema)?;
    let state = context.apply(context.install("web", &good, "outer: {size: 1}")).await?;
    context
        .apply_fails(context.upgrade("web", &good, "outer: {size: big}"), FailureCategory::InvalidValues)
        .await?;
    context.agree(&state).await
}

async fn secret(context: &Context) -> Result<(), CaseError> {
    const SECRET: &str = "canary-7f3a";
    let package = context.pack_chart(&Chart::config().file("values.schema.json", SCHEMA))?;
    let values = [
        format!("outer: {{size: {SECRET}}}"),
        format!("outer: {{word: {SECRET}}}"),
        format!("outer: {{code: {SECRET}}}"),
        SECRET.to_owned(),
        format!("- {SECRET}"),
        format!("a: b\n{SECRET}\nc: d\n"),
        format!("a: [{SECRET}"),
        format!("a: *{SECRET}"),
        format!("~: {SECRET}"),
        format!("{{a: {SECRET}}}: b"),
        format!("[{SECRET}]: b"),
    ];
    for values in values {
        let ended = context.tool.apply(context.install("web", &package, &values)).await?;
        let failure = ended.failure(FailureCategory::InvalidValues).map_err(|error| error.within(&values))?;
        ensure!(!failure.message.contains(SECRET), "for {values:?} the message is: {}", failure.message);
    }
    Ok(())
}
