//! The guides for users of HelmChartProxy, on a management cluster with the Cluster API Add-on Provider for Helm (CAAPH).

use std::{collections::BTreeSet, path::Path, time::Duration};

use chandler_api::addons::HelmChartProxy;
use chandler_e2e::{
    go_module, programs,
    shell::{Shell, text},
    wait::until,
    world::TestSlot,
};
use chandler_sandbox::{
    apply,
    plane::{Plane, free_port},
    process::Child,
    repository::ChartRepository,
    testing,
};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps},
};
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    caaph_addon::CaaphAddon,
    documents::{blocks, commands, commands_of, document, root, section},
    installed_manager,
    providers::{INIT_CORE, NEWER, OLDER, Providers, wait_cert_manager_test_deleted},
};

pub const MIGRATING: &str = "docs/guides/migrating-from-caaph.md";
pub const USING: &str = "docs/guides/helm-chart-proxy.md";

/// Returns the section of the getting-started guide for an existing management cluster.
fn getting_started() -> String {
    section(&document("docs/guides/getting-started.md"), "On your own management cluster").to_owned()
}

/// Returns the commands of that section.
pub fn getting_started_commands() -> Vec<String> {
    commands(&getting_started())
}

/// Returns the Lease of CAAPH, whose manager does not run here.
fn caaph_lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "controller-leader-election-caaph", "namespace": "caaph-system"},
        "spec": {"holderIdentity": "caaph-controller-manager-7c9f8d6b5-abcde"},
    })
}

fn manager_arguments(shell: &Shell, kubeconfig: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let tool = programs::package_tool().to_owned();
    let store = text(&shell.home.join("store"));
    let address = "127.0.0.1:0".to_owned();
    [
        ("--kubeconfig", text(kubeconfig)),
        ("--tool", tool),
        ("--store", store),
        ("--metrics-address", address),
        ("--lease-seconds", "3".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

/// Runs a manager that must refuse to start. Returns its stderr.
async fn manager_refusal(shell: &Shell, kubeconfig: &Path) -> String {
    let line = format!("{} manager {}", programs::chandler(), manager_arguments(shell, kubeconfig).join(" "));
    let output = shell.run(&line, &[], Duration::from_mins(2)).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_guides_work_in_order() {
    let _slot = TestSlot::shared().await;
    let shell = Shell::with_clusterctl("guides").await;
    let plane = testing::sandbox().await.unwrap().management();
    let (client, kubeconfig) = (plane.client().await.unwrap(), plane.kubeconfig_path());
    let environment = [("KUBECONFIG", &*kubeconfig.to_string_lossy())];
    let in_root = |line: &str| format!("cd {} && {line}", root().display());
    let providers = Providers::new(&shell.home.join("providers"), &client).await;
    providers.chandler().await;
    let caaph_crds = providers.caaph().await;
    shell.configure_clusterctl(&providers.config());
    shell.expect(INIT_CORE, &environment).await;
    wait_cert_manager_test_deleted(&client).await;
    // The CRDs are created before the webhooks of CAAPH, whose server does not run here.
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let clusterctl = PostParams { field_manager: Some("clusterctl".to_owned()), ..PostParams::default() };
    for crd in caaph_crds {
        crds.create(&clusterctl, &serde_json::from_value(crd).unwrap()).await.unwrap();
    }
    let addon = CaaphAddon::new(&shell, &client).await;
    shell.expect("clusterctl init --addon helm", &environment).await;
    wait_cert_manager_test_deleted(&client).await;
    apply::apply(&client, &caaph_lease()).await.unwrap();
    let placements: Api<HelmChartProxy> = Api::namespaced(client.clone(), "default");
    let (placement, secrets, deployment) =
        (placements.get("kept").await.unwrap(), addon.release_secrets().await, addon.deployment().await);

    for (flag, expected) in [
        ("", "- .spec.conversion.strategy"),
        ("--force-conflicts", "spec.conversion.webhookClientConfig: Forbidden"),
    ] {
        let server_side = format!("chandler crds | kubectl apply --server-side {flag} -f -");
        let output = shell.run(&server_side, &environment, Duration::from_mins(2)).await;
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{stderr}");
    }
    let refusal = manager_refusal(&shell, &kubeconfig).await;
    let delete_lease = "kubectl delete lease controller-leader-election-caaph --namespace caaph-system";
    assert!(refusal.contains(delete_lease), "{refusal}");
    let migrating = commands_of(MIGRATING);
    assert!(migrating.iter().any(|line| line == delete_lease), "{migrating:?}");
    for line in migrating {
        if line == delete_lease {
            let refusal = manager_refusal(&shell, &kubeconfig).await;
            assert!(refusal.contains(delete_lease), "clusterctl does not delete the Lease");
        }
        shell.expect(&in_root(&line), &environment).await;
    }
    for crd in chandler_api::crds() {
        let conversion = crds.get(&crd.name_any()).await.unwrap().spec.conversion.unwrap();
        assert_eq!((conversion.strategy.as_str(), conversion.webhook), ("None", None));
    }
    assert_eq!(placements.get("kept").await.unwrap().uid(), placement.uid());

    let manager = start_manager_with_hooks(&shell, plane).await;
    addon.wait_adopted().await;
    assert_eq!(addon.release_secrets().await[0].data, secrets[0].data, "the release Secret is unchanged");
    assert_eq!(addon.deployment().await.metadata.generation, deployment.metadata.generation);
    for line in commands_of(USING) {
        shell.expect(&in_root(&line), &environment).await;
    }
    let guide = document(USING);
    let examples = blocks(&guide, "yaml");
    assert_eq!(examples.len(), guide.matches("```yaml").count());
    assert!(!examples.is_empty(), "{USING} has no examples");
    for example in examples {
        let file = shell.home.join("example.yaml");
        std::fs::write(&file, example.join("\n")).unwrap();
        let line = format!("kubectl apply --dry-run=server --validate=strict -f {}", file.display());
        shell.expect(&line, &environment).await;
    }
    assert!(manager.is_running());
    manager.stop(Duration::from_secs(10)).await;
    upgrade_chandler(&shell, &environment, &client).await;
    delete_chandler(&shell, &environment, &client).await;
    assert_eq!(addon.release_secrets().await.len(), 1, "the release is kept when Chandler is deleted");
    assert!(
        placements.get_opt("kept").await.unwrap().is_some(),
        "the objects are kept when Chandler is deleted"
    );
    follow_getting_started(&shell, &environment, &addon.repository).await;
}

/// Starts a manager that serves hooks.
async fn start_manager_with_hooks(shell: &Shell, plane: &Plane) -> Child {
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let endpoint = format!("https://{address}");
    installed_manager::start(
        plane,
        &shell.home,
        &["--hooks-endpoint", &endpoint, "--hooks-address", &address],
    )
    .await
}

/// Returns the installed version of Chandler.
async fn installed_version(client: &Client) -> Option<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-system");
    let containers = deployments.get_opt("chandler-manager").await.unwrap()?.spec?.template.spec?.containers;
    containers[0].image.as_deref()?.rsplit_once(':').map(|(_, tag)| tag.to_owned())
}

async fn upgrade_chandler(shell: &Shell, environment: &[(&str, &str)], client: &Client) {
    let plan = shell.expect("clusterctl upgrade plan", environment).await;
    let offered = plan.lines().any(|line| line.contains("addon-chandler") && line.contains(NEWER));
    assert!(offered, "{plan}");
    assert_eq!(installed_version(client).await.as_deref(), Some(OLDER));
    shell.expect(&format!("clusterctl upgrade apply --addon chandler:{NEWER}"), environment).await;
    assert_eq!(installed_version(client).await.as_deref(), Some(NEWER));
}

async fn delete_chandler(shell: &Shell, environment: &[(&str, &str)], client: &Client) {
    let plane = testing::sandbox().await.unwrap().management();
    let manager = start_manager_with_hooks(shell, plane).await;
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let hooks: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let registered = async || hooks.list(&ListParams::default()).await.unwrap().items.len();
    until("hooks are registered", async || registered().await == 1).await;
    manager.stop(Duration::from_secs(10)).await;
    shell.expect("clusterctl delete --addon chandler", environment).await;
    assert_eq!(installed_version(client).await, None);
    until("the hooks are unregistered", async || registered().await == 0).await;
}

/// Runs the commands of the getting-started guide. The chart is served from a local repository instead of the internet.
async fn follow_getting_started(shell: &Shell, environment: &[(&str, &str)], repository: &ChartRepository) {
    let module = go_module::folder(&shell.home, "sigs.k8s.io/descheduler@v0.36.0").await;
    repository.publish_version(&module.join("charts/descheduler"), "0.34.0").unwrap();
    let guide = getting_started();
    let examples = blocks(&guide, "yaml");
    let [example] = examples.as_slice() else { panic!("the guide has one example") };
    let example =
        example.join("\n").replace("https://kubernetes-sigs.github.io/descheduler", repository.url());
    let example = format!("{example}\n  tlsConfig: {{caSecret: {{name: ca}}}}\n");
    std::fs::write(shell.home.join("descheduler.yaml"), example).unwrap();
    let plane = testing::sandbox().await.unwrap().management();
    let mut manager = None;
    let mut outputs =
        ["next step: correct the chart name or version", "alpha: Ready, descheduler 0.34.0"].into_iter();
    for line in getting_started_commands() {
        let command = format!("cd {} && {line}", shell.home.display());
        if line == "chandler describe descheduler" {
            let output = outputs.next().unwrap();
            until(output, async || shell.expect(&command, environment).await.contains(output)).await;
        } else {
            shell.expect(&command, environment).await;
        }
        if line.starts_with("clusterctl init") {
            manager = Some(start_manager_with_hooks(shell, plane).await);
        }
    }
    assert_eq!(outputs.next(), None);
    manager.unwrap().stop(Duration::from_secs(10)).await;
}

#[test]
fn the_guide_mentions_every_field() {
    let crd = HelmChartProxy::crd();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let mut fields = BTreeSet::new();
    collect_fields(&schema.properties.unwrap()["spec"], &mut fields);
    assert!(fields.contains("cleanupOnFail"), "{fields:?}");
    let guide = document(USING);
    let words: BTreeSet<&str> =
        guide.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let missing: Vec<_> = fields.iter().filter(|field| !words.contains(field.as_str())).collect();
    assert!(missing.is_empty(), "the guide does not mention {missing:?}");
}

fn collect_fields(schema: &JSONSchemaProps, fields: &mut BTreeSet<String>) {
    for (name, schema) in schema.properties.iter().flatten() {
        fields.insert(name.clone());
        collect_fields(schema, fields);
    }
}
