//! Rendering of Helm charts.

use chandler_tool::generated::tool::{CrdPolicy, ObjectRole, RenderedObject, RenderedRelease};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    Case, CaseError,
    chart::{Chart, Hook, HookEnd},
    context::Context,
    topics::render::{names, render},
};

pub const CASES: &[Case] = &[
    case!(
        "helm/render/hooks",
        [HelmRecords, Render],
        hooks,
        "Hooks and tests are rendered apart from the objects of the release, and do not run."
    ),
    case!("helm/render/lookup", [HelmRecords, Render], lookup, "The function lookup reads from the cluster."),
    case!(
        "helm/render/crds",
        [HelmRecords, Render, Crds],
        crds,
        "Objects in crds/ are rendered on install unless they are skipped, and on upgrade only if they are replaced."
    ),
];

/// Returns kind and name of the objects with a role.
fn with_role(objects: &[RenderedObject], role: ObjectRole) -> Vec<String> {
    let own: Vec<_> = objects.iter().filter(|object| object.role() == role).cloned().collect();
    names(&own)
}

async fn hooks(context: &Context) -> Result<(), CaseError> {
    let chart = Chart::config()
        .hook(&Hook::new("before", "pre-install,pre-upgrade", HookEnd::Succeeds))
        .hook(&Hook::new("check", "test", HookEnd::Succeeds));
    let package = context.pack_chart(&chart)?;
    let rendered = render(context, context.rendering("web", &package, "size: 1")).await?;
    let objects = with_role(&rendered.objects, ObjectRole::Unspecified);
    ensure!(objects == ["ConfigMap web"], "the objects are {objects:?}");
    let hooks = with_role(&rendered.objects, ObjectRole::Hook);
    ensure!(hooks.len() == 2, "the hooks are {hooks:?}");
    let mut request = context.rendering("web", &package, "size: 1");
    request.options.get_or_insert_default().disable_hooks = true;
    let rendered = render(context, request).await?;
    let hooks = with_role(&rendered.objects, ObjectRole::Hook);
    ensure!(hooks.is_empty(), "hooks are disabled, but rendered were {hooks:?}");
    context.agree_absent("web").await
}

async fn lookup(context: &Context) -> Result<(), CaseError> {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  \
                    values: {{ (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"existing\").data.found | quote }}\n";
    let mut existing = ConfigMap::default();
    existing.metadata.name = Some("existing".to_owned());
    existing.data = Some([("found".to_owned(), "there".to_owned())].into());
    context.api::<ConfigMap>().create(&kube::api::PostParams::default(), &existing).await?;
    let package = context.pack_chart(&Chart::new("lookup").template("config.yaml", template))?;
    let rendered = render(context, context.rendering("web", &package, json!({}))).await?;
    let text = rendered.objects.first().map(|object| String::from_utf8_lossy(&object.json).into_owned());
    ensure!(text.as_deref().is_some_and(|text| text.contains("there")), "the object is {text:?}");
    Ok(())
}

async fn crds(context: &Context) -> Result<(), CaseError> {
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  \
               name: rendered.conformance.invalid\n";
    let package = context.pack_chart(&Chart::config().file("crds/crd.yaml", crd))?;
    let rendered = async |policy: CrdPolicy| -> Result<RenderedRelease, CaseError> {
        let mut request = context.rendering("web", &package, "size: 1");
        request.options.get_or_insert_default().crds = policy.into();
        render(context, request).await
    };
    let expected = ["CustomResourceDefinition rendered.conformance.invalid"];
    for (policy, count) in [(CrdPolicy::Unspecified, 1), (CrdPolicy::Skip, 0), (CrdPolicy::CreateReplace, 1)]
    {
        let found = with_role(&rendered(policy).await?.objects, ObjectRole::Crd);
        ensure!(found == expected[..count], "with {policy:?}, an install has {found:?}");
    }
    let mut install = context.install("web", &package, "size: 1");
    install.options.get_or_insert_default().crds = CrdPolicy::Skip.into();
    context.apply(install).await?;
    for (policy, count) in [(CrdPolicy::Unspecified, 0), (CrdPolicy::Skip, 0), (CrdPolicy::CreateReplace, 1)]
    {
        let upgrade = rendered(policy).await?;
        for objects in [&upgrade.base_objects, &upgrade.objects] {
            let found = with_role(objects, ObjectRole::Crd);
            ensure!(found == expected[..count], "with {policy:?}, an upgrade has {found:?}");
        }
    }
    Ok(())
}
