//! What the tool says of itself and of packages, without any cluster.

use chandler_tool::generated::tool::{FailureCategory, Package};

use crate::{Case, CaseError, chart::Chart, context::Context};

pub const CASES: &[Case] = &[
    case!("packages/describe", None, describe, "A tool says who it is and how many operations run."),
    case!("packages/inspect", None, inspect, "Inspect reads what a catalog needs to know of a package."),
    case!(
        "packages/capabilities",
        None,
        capabilities,
        "Inspect tells whether templates read what the cluster is."
    ),
    case!(
        "packages/invalid",
        None,
        invalid,
        "A package that is missing, altered or no archive is INVALID_PACKAGE."
    ),
    case!(
        "packages/refused",
        None,
        refused,
        "A template that does not parse, or the wrong Kubernetes, is INVALID_PACKAGE."
    ),
    case!(
        "packages/references",
        None,
        references,
        "A schema that refers to a file or a server is INVALID_PACKAGE; nothing is read or asked for."
    ),
];

async fn describe(context: &Context) -> Result<(), CaseError> {
    let answer = context.own_tool().describe().await?;
    let named = [&answer.name, &answer.version, &answer.driver_version];
    ensure!(named.iter().all(|word| !word.is_empty()), "an empty name or version in {answer:?}");
    ensure!(answer.formats.iter().any(|format| format == "helm/v2"), "the formats are {:?}", answer.formats);
    ensure!(
        answer.running_operations == 0,
        "{} operations run in a fresh process",
        answer.running_operations
    );
    Ok(())
}

async fn inspect(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config()
        .metadata(
            "description: Says things\nhome: https://example.invalid/home\nicon: https://example.invalid/icon.svg\n\
             keywords: [one, two]\nkubeVersion: '>=1.20.0-0'\ndeprecated: true\nannotations: {category: Test}\n\
             maintainers: [{name: Ann, email: ann@example.invalid, url: https://example.invalid/ann}]\n\
             dependencies: [{name: child, version: 1.x.x, repository: 'https://example.invalid', condition: child.enabled}]\n",
        )
        .file("charts/child/Chart.yaml", "apiVersion: v2\nname: child\nversion: 1.2.3\n")
        .file("values.yaml", "# comments stay\nsize: 1\n")
        .file("values.schema.json", r#"{"type": "object"}"#)
        .file("README.md", "# Read me\n")
        .file("crds/things.yaml", super::crds::definition("inspect.example.invalid", "one"));
    let package = context.pack(&chart)?;
    let info = context.tool.inspect(&package).await?.map_err(|failure| CaseError::Broken(failure.message))?;
    let texts = [
        ("name", &*info.name, "config"),
        ("version", &*info.version, "1.0.0"),
        ("app version", &*info.app_version, "app-1.0.0"),
        ("description", &*info.description, "Says things"),
        ("home", &*info.home, "https://example.invalid/home"),
        ("icon", &*info.icon, "https://example.invalid/icon.svg"),
        ("Kubernetes constraint", &*info.kubernetes, ">=1.20.0-0"),
        ("default values", &*info.default_values, "# comments stay\nsize: 1\n"),
        ("README", &*info.readme, "# Read me\n"),
        ("schema", &*String::from_utf8_lossy(&info.values_schema), r#"{"type": "object"}"#),
    ];
    for (what, got, expected) in texts {
        ensure!(got == expected, "{what}: got {got:?}, expected {expected:?}");
    }
    ensure!(info.keywords == ["one", "two"] && info.deprecated, "keywords or deprecation lost: {info:?}");
    ensure!(info.crds == ["things.inspect.example.invalid"], "the definitions are {:?}", info.crds);
    ensure!(info.annotations.get("category").is_some_and(|value| value == "Test"), "{:?}", info.annotations);
    ensure!(info.maintainers.first().is_some_and(|one| one.name == "Ann"), "{:?}", info.maintainers);
    let dependency = info.dependencies.first().map(|one| (&*one.name, &*one.version, &*one.condition));
    ensure!(dependency == Some(("child", "1.x.x", "child.enabled")), "the dependency is {dependency:?}");
    Ok(())
}

async fn capabilities(context: &Context) -> Result<(), CaseError> {
    let reads = [
        ("{{ .Values.x }}", false),
        ("{{/* .Capabilities */}}", false),
        ("{{ .Capabilities.KubeVersion.Version }}", true),
        ("{{ with $ }}{{ .Capabilities.APIVersions.Has \"v1\" }}{{ end }}", true),
    ];
    for (template, expected) in reads {
        let package = context.pack(&Chart::config().template("x.yaml", template))?;
        let info =
            context.tool.inspect(&package).await?.map_err(|failure| CaseError::Broken(failure.message))?;
        ensure!(info.reads_capabilities == expected, "{template:?}: reads_capabilities is {}", !expected);
    }
    Ok(())
}

async fn invalid(context: &Context) -> Result<(), CaseError> {
    // Of contents that the tool has not seen: it may keep what it has read by its digest.
    let good = context.pack(&Chart::config().file("README.md", "invalid"))?;
    let other = context.pack(&Chart::config().file("README.md", "other"))?;
    let missing = context.path("missing.tgz").to_string_lossy().into_owned();
    let packages = [
        ("no archive", context.package(b"this is no archive")?),
        ("an empty file", context.package(b"")?),
        ("a missing file", Package { path: missing, digest: good.digest.clone() }),
        ("another content than the digest says", Package { digest: other.digest, ..good.clone() }),
        ("an archive cut short", context.package(&std::fs::read(&good.path)?[..100])?),
    ];
    for (what, package) in packages {
        let inspected = context.tool.inspect(&package).await?;
        let category = inspected.map_or_else(|failure| failure.category(), |_| FailureCategory::Unspecified);
        ensure!(category == FailureCategory::InvalidPackage, "Inspect of {what}: {}", category.as_str_name());
        let request = context.install("web", &package, "");
        context
            .refused(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| about(what, &error))?;
    }
    context.agree_absent("web").await
}

async fn refused(context: &Context) -> Result<(), CaseError> {
    let charts = [
        ("a template that does not parse", Chart::config().template("x.yaml", "{{ if }}"), "x.yaml"),
        ("a chart for another Kubernetes", Chart::config().metadata("kubeVersion: '<1.20.0'\n"), "<1.20.0"),
        ("a library", Chart::config().metadata("type: library\n"), "library"),
    ];
    for (what, chart, hint) in charts {
        let request = context.install("web", &context.pack(&chart)?, "");
        let failure =
            context.refused(request, FailureCategory::InvalidPackage).await.map_err(|e| about(what, &e))?;
        ensure!(
            failure.message.contains(hint),
            "{what}: the message does not say {hint:?}: {}",
            failure.message
        );
    }
    context.agree_absent("web").await
}

async fn references(context: &Context) -> Result<(), CaseError> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let server = format!("http://{}/schema.json", listener.local_addr()?);
    let file = context.path("schema.json");
    std::fs::write(&file, "true")?;
    for outside in [server, format!("file://{}", file.display())] {
        let schema = format!(r#"{{"properties": {{"a": {{"$ref": "{outside}"}}}}}}"#);
        let package = context.pack(&Chart::config().file("values.schema.json", schema))?;
        let inspected = context.tool.inspect(&package).await?;
        let failure = inspected.err().ok_or_else(|| CaseError::Broken(format!("Inspect takes {outside}")))?;
        ensure!(
            failure.category() == FailureCategory::InvalidPackage && failure.message.contains(&outside),
            "a schema with {outside}: {failure:?}"
        );
        let request = context.install("web", &package, "a: 1");
        context
            .refused(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| about(&outside, &error))?;
    }
    ensure!(listener.accept().is_err(), "the tool asked the server that a schema refers to");
    context.agree_absent("web").await
}

/// Which line of a table failed.
pub fn about(what: &str, error: &CaseError) -> CaseError {
    CaseError::Broken(format!("{what}: {error}"))
}
