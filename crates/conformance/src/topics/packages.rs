//! The tool's description of itself and of packages, which needs no cluster.

use std::collections::HashSet;

use chandler_tool::generated::tool::{FailureCategory, Package};
use serde_json::json;

use crate::{Case, CaseError, context::Context, package::TestPackage, request};

pub const CASES: &[Case] = &[
    case!(
        "packages/describe",
        [],
        describe,
        "Describe returns the tool's name, versions and formats, and the number of running operations."
    ),
    case!(
        "packages/records",
        [],
        records,
        "Describe declares records that the cluster serves and that can be selected by label."
    ),
    case!("packages/inspect", [], inspect, "Inspect returns a package's name, version and default values."),
    case!(
        "packages/invalid",
        [],
        invalid,
        "A package that is missing, altered or of another format is INVALID_PACKAGE."
    ),
];

async fn describe(context: &Context) -> Result<(), CaseError> {
    let answer = context.own_tool().describe().await?;
    let texts = [&answer.name, &answer.version, &answer.driver_version];
    ensure!(texts.iter().all(|text| !text.is_empty()), "an empty name or version in {answer:?}");
    ensure!(!answer.formats.is_empty(), "the tool declares no format");
    for format in &answer.formats {
        let valid = format.split_once('/').is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty());
        ensure!(valid, "the format {format:?} is not an OCI artifact type");
    }
    let unique: HashSet<_> = answer.formats.iter().chain(&answer.capabilities).collect();
    ensure!(
        unique.len() == answer.formats.len() + answer.capabilities.len(),
        "a format or capability is declared twice in {answer:?}"
    );
    ensure!(answer.running_operations == 0, "{} operations run in a new process", answer.running_operations);
    Ok(())
}

async fn records(context: &Context) -> Result<(), CaseError> {
    let records = context.records("web").await?;
    ensure!(records.is_empty(), "there are records before the first operation: {records:?}");
    // Chandler reads the declaration once.
    let (one, two) = (context.tool.describe().await?, context.own_tool().describe().await?);
    ensure!(one.records == two.records, "two processes declare {:?} and {:?}", one.records, two.records);
    Ok(())
}

async fn inspect(context: &Context) -> Result<(), CaseError> {
    let defaults = json!({"size": 1, "nested": {"name": "one"}});
    let test = TestPackage::config().version("1.2.3").default_values(defaults.clone());
    let package = context.pack(&test).await?;
    let info =
        context.tool.inspect(&package).await?.map_err(|failure| CaseError::Violation(failure.message))?;
    ensure!(
        (&*info.name, &*info.version) == ("config", "1.2.3"),
        "Inspect returns {} {}",
        info.name,
        info.version
    );
    // A format need not have these.
    for (what, got, expected) in [
        ("app version", &info.app_version, &test.app_version),
        ("description", &info.description, &test.description),
    ] {
        ensure!(got.is_empty() || got == expected, "{what}: got {got:?}, expected {expected:?}");
    }
    let read = |layer| async move {
        let answer = context.tool.canonicalize(vec![layer]).await?;
        answer.map_err(|failure| CaseError::Violation(format!("Canonicalize: {}", failure.message)))
    };
    let (shipped, expected) =
        (read(request::text(&info.default_values)).await?, read(request::json(&defaults.to_string())).await?);
    ensure!(
        shipped.digest == expected.digest,
        "the default values {:?} are read as {}",
        info.default_values,
        String::from_utf8_lossy(&shipped.json)
    );
    Ok(())
}

async fn invalid(context: &Context) -> Result<(), CaseError> {
    // The tool has not cached these contents.
    let good = context.pack(&TestPackage::config().description("invalid")).await?;
    let other = context.pack(&TestPackage::config().description("other")).await?;
    let missing = context.path("missing").to_string_lossy().into_owned();
    let packages = [
        ("another format", context.write_package(b"\0\x01\xfe\xff is no package")?),
        ("an empty file", context.write_package(b"")?),
        ("a missing file", Package { path: missing, ..good.clone() }),
        ("content with another digest", Package { digest: other.digest, ..good }),
    ];
    for (what, package) in packages {
        let inspected = context.tool.inspect(&package).await?;
        let category = inspected.map_or_else(|failure| failure.category(), |_| FailureCategory::Unspecified);
        ensure!(category == FailureCategory::InvalidPackage, "Inspect of {what}: {}", category.as_str_name());
        let request = context.install("web", &package, json!({}));
        context
            .apply_fails(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| error.within(what))?;
    }
    context.agree_absent("web").await
}
