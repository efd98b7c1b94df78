//! Builds of manifests and kustomizations, which the process that renders templates does.

use chandler_tool::generated::template::{
    BuildFailure, BuildRequest, BuiltObject, SourceFile, build_response::Outcome,
};

use crate::{Case, CaseError, context::Context};

pub const CASES: &[Case] = &[
    case!(
        "builds/manifests",
        [Templates],
        manifests,
        "The objects of a folder are built with the file and line of each, and without evaluating templates."
    ),
    case!(
        "builds/values",
        [Templates],
        values,
        "With values, manifests are templates, and replacements of a kustomization read the values."
    ),
    case!(
        "builds/kustomization",
        [Templates],
        kustomization,
        "A kustomization is built from files of the request, also from those outside its folder."
    ),
    case!(
        "builds/remote",
        [Templates],
        remote,
        "A kustomization that refers to a remote location fails with the file and line, and sends no request."
    ),
    case!(
        "builds/limits",
        [Templates],
        limits,
        "The output of a build is limited, and an empty one is a failure."
    ),
];

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  text: '{{ .Values.size }}'\n";

fn request(path: &str, files: &[(&str, &str)]) -> BuildRequest {
    let file = |(path, content): &(&str, &str)| SourceFile {
        path: (*path).to_owned(),
        content: content.as_bytes().to_vec(),
    };
    BuildRequest { files: files.iter().map(file).collect(), path: path.to_owned(), ..BuildRequest::default() }
}

async fn build(
    context: &Context,
    request: BuildRequest,
) -> Result<Result<Vec<BuiltObject>, BuildFailure>, CaseError> {
    let service = context.templates.as_ref();
    let service = service.ok_or_else(|| CaseError::Host("there is no template service".into()))?;
    match service.build(request).await?.outcome {
        Some(Outcome::Built(built)) => Ok(Ok(built.objects)),
        Some(Outcome::Failure(failure)) => Ok(Err(failure)),
        None => Err(CaseError::Violation("Build ended without a result".to_owned())),
    }
}

/// Returns the only object, which must contain the text.
async fn one(context: &Context, request: BuildRequest, text: &str) -> Result<BuiltObject, CaseError> {
    let built = build(context, request).await?;
    let objects = built.map_err(|failure| CaseError::Violation(format!("Build failed: {failure:?}")))?;
    let [object] = &objects[..] else {
        return Err(CaseError::Violation(format!("Build returns {objects:?}")));
    };
    ensure!(object.yaml.contains(text), "{text:?} is not in {:?}", object.yaml);
    Ok(object.clone())
}

async fn failure(context: &Context, request: BuildRequest) -> Result<BuildFailure, CaseError> {
    match build(context, request).await? {
        Err(failure) => Ok(failure),
        Ok(objects) => Err(CaseError::Violation(format!("Build returns {objects:?}"))),
    }
}

async fn manifests(context: &Context) -> Result<(), CaseError> {
    let text = format!("# first\n---\n{CONFIG}");
    let files = [("apps/web/a.yaml", &*text), ("other/b.yaml", "not an object")];
    let object = one(context, request("apps", &files), "{{ .Values.size }}").await?;
    let place = (&*object.file, object.line);
    ensure!(place == ("apps/web/a.yaml", 3), "the object comes from {place:?}");
    Ok(())
}

async fn values(context: &Context) -> Result<(), CaseError> {
    let values = br#"{"size": "three"}"#.to_vec();
    let templates = BuildRequest { values: values.clone(), ..request("", &[("a.yaml", CONFIG)]) };
    one(context, templates, "text: three").await?;
    let replaced = "resources: [a.yaml]\nreplacements:\n- source: {kind: ConfigMap, name: chandler-values, \
                    fieldPath: data.size}\n  targets:\n  - select: {name: one}\n    fieldPaths: [data.text]\n";
    let files = [("kustomization.yaml", replaced), ("a.yaml", CONFIG)];
    one(context, BuildRequest { values, ..request("", &files) }, "text: three").await.map(drop)
}

async fn kustomization(context: &Context) -> Result<(), CaseError> {
    let files = [
        ("overlays/blue/kustomization.yaml", "resources: [../../base]\nnamePrefix: blue-\n"),
        ("base/kustomization.yaml", "resources: [a.yaml]\n"),
        ("base/a.yaml", CONFIG),
    ];
    let object = one(context, request("overlays/blue", &files), "name: blue-one").await?;
    ensure!(object.file == "base/a.yaml", "the object comes from {:?}", object.file);
    Ok(())
}

async fn remote(context: &Context) -> Result<(), CaseError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    for location in [format!("http://{address}/a.yaml"), format!("http://{address}/example/repo.git")] {
        let file = format!("resources:\n- {location}\n");
        let failed = failure(context, request("", &[("kustomization.yaml", &*file)])).await?;
        let place = (&*failed.file, failed.line);
        ensure!(place == ("kustomization.yaml", 2), "the failure is at {place:?}: {}", failed.message);
    }
    let connected = tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
    ensure!(connected.is_err(), "the build has connected to the address");
    Ok(())
}

async fn limits(context: &Context) -> Result<(), CaseError> {
    let large = BuildRequest { max_output_bytes: 10, ..request("", &[("a.yaml", CONFIG)]) };
    failure(context, large).await?;
    failure(context, request("", &[("a.yaml", "# nothing\n")])).await?;
    failure(context, request("missing", &[("a.yaml", CONFIG)])).await?;
    one(context, request("", &[("a.yaml", CONFIG)]), "name: one").await.map(drop)
}
