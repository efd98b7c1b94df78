//! Helm charts as packages.

use chandler_tool::generated::tool::{FailureCategory, ReleaseRecords};

use crate::{
    Case, CaseError, chart::Chart, context::Context, custom_resources::definition, packer::HELM_FORMAT,
};

pub const CASES: &[Case] = &[
    case!("helm/packages/describe", [HelmRecords], describe, "The tool declares Helm's format and records."),
    case!(
        "helm/packages/inspect",
        [HelmRecords],
        inspect,
        "Inspect returns what a catalog shows of a chart."
    ),
    case!(
        "helm/packages/capabilities",
        [HelmRecords],
        capabilities,
        "Inspect returns whether templates read the cluster's capabilities."
    ),
    case!(
        "helm/packages/truncated",
        [HelmRecords],
        truncated,
        "A chart archive that is truncated is INVALID_PACKAGE."
    ),
    case!(
        "helm/packages/rejected",
        [HelmRecords],
        rejected,
        "A template that does not parse, another Kubernetes version and a library chart are INVALID_PACKAGE."
    ),
    case!(
        "helm/packages/references",
        [HelmRecords],
        references,
        "A schema that refers to a file or a server is INVALID_PACKAGE, and nothing is read or requested."
    ),
];

async fn describe(context: &Context) -> Result<(), CaseError> {
    let answer = context.tool.describe().await?;
    ensure!(
        answer.formats.iter().any(|format| format == HELM_FORMAT),
        "the formats are {:?}",
        answer.formats
    );
    let expected = ReleaseRecords {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        plural: "secrets".to_owned(),
        label_selector: "owner=helm".to_owned(),
        object_name: "sh.helm.release.v1.{release}.v{revision}".to_owned(),
        release_label: "name".to_owned(),
        revision_label: "version".to_owned(),
        status_label: "status".to_owned(),
        time_labels: vec!["modifiedAt".to_owned(), "createdAt".to_owned()],
        object_label_selector: "app.kubernetes.io/managed-by=Helm".to_owned(),
    };
    ensure!(answer.records.as_ref() == Some(&expected), "the records are {:?}", answer.records);
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
        .file("crds/things.yaml", definition("inspect.example.invalid", &["one"]));
    let package = context.pack_chart(&chart)?;
    let info =
        context.tool.inspect(&package).await?.map_err(|failure| CaseError::Violation(failure.message))?;
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
    ensure!(info.crds == ["things.inspect.example.invalid"], "the CRDs are {:?}", info.crds);
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
        let package = context.pack_chart(&Chart::config().template("x.yaml", template))?;
        let info =
            context.tool.inspect(&package).await?.map_err(|failure| CaseError::Violation(failure.message))?;
        ensure!(info.reads_capabilities == expected, "{template:?}: reads_capabilities is {}", !expected);
    }
    Ok(())
}

async fn truncated(context: &Context) -> Result<(), CaseError> {
    let good = context.pack_chart(&Chart::config().file("README.md", "truncated"))?;
    let archive = std::fs::read(&good.path)?;
    for length in [100, archive.len() / 2] {
        let package = context.write_package(&archive[..length])?;
        let inspected = context.tool.inspect(&package).await?;
        let category = inspected.map_or_else(|failure| failure.category(), |_| FailureCategory::Unspecified);
        ensure!(
            category == FailureCategory::InvalidPackage,
            "Inspect of {length} of {} bytes: {}",
            archive.len(),
            category.as_str_name()
        );
        context.apply_fails(context.install("web", &package, ""), FailureCategory::InvalidPackage).await?;
    }
    context.agree_absent("web").await
}

async fn rejected(context: &Context) -> Result<(), CaseError> {
    let charts = [
        ("a template that does not parse", Chart::config().template("x.yaml", "{{ if }}"), "x.yaml"),
        ("a chart for another Kubernetes", Chart::config().metadata("kubeVersion: '<1.20.0'\n"), "<1.20.0"),
        ("a library", Chart::config().metadata("type: library\n"), "library"),
    ];
    for (what, chart, hint) in charts {
        let request = context.install("web", &context.pack_chart(&chart)?, "");
        let failure = context
            .apply_fails(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| error.within(what))?;
        ensure!(
            failure.message.contains(hint),
            "{what}: the message does not contain {hint:?}: {}",
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
        let package = context.pack_chart(&Chart::config().file("values.schema.json", schema))?;
        let inspected = context.tool.inspect(&package).await?;
        let failure =
            inspected.err().ok_or_else(|| CaseError::Violation(format!("Inspect accepts {outside}")))?;
        ensure!(
            failure.category() == FailureCategory::InvalidPackage && failure.message.contains(&outside),
            "a schema with {outside}: {failure:?}"
        );
        let request = context.install("web", &package, "a: 1");
        context
            .apply_fails(request, FailureCategory::InvalidPackage)
            .await
            .map_err(|error| error.within(&outside))?;
    }
    ensure!(listener.accept().is_err(), "the tool sent a request to the server that a schema refers to");
    context.agree_absent("web").await
}
