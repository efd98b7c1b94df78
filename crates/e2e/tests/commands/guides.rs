//! The guides for users of HelmChartProxy, on a management cluster that another provider has looked after so far.

use std::{collections::BTreeSet, path::Path, time::Duration};

use chandler_api::addons::HelmChartProxy;
use chandler_e2e::{
    go_module, programs,
    shell::{Shell, text},
    wait::until,
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
    documents::{blocks, commands, commands_of, document, root, section},
    inherited::Addon,
    installed,
    providers::{INIT_CORE, NEWER, OLDER, Providers, settled},
};

pub const MIGRATING: &str = "docs/guides/migrating-from-caaph.md";
pub const USING: &str = "docs/guides/helm-chart-proxy.md";

/// The guide for newcomers who have a management cluster.
fn starting() -> String {
    section(&document("docs/guides/getting-started.md"), "On your own management cluster").to_owned()
}

/// Its commands.
pub fn started() -> Vec<String> {
    commands(&starting())
}

/// Where the other provider keeps its Lease, which only its process would make.
fn lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "controller-leader-election-caaph", "namespace": "caaph-system"},
        "spec": {"holderIdentity": "caaph-controller-manager-7c9f8d6b5-abcde"},
    })
}

fn manager(shell: &Shell, config: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let tool = programs::package_tool().to_owned();
    let store = text(&shell.home.join("store"));
    let address = "127.0.0.1:0".to_owned();
    [
        ("--kubeconfig", text(config)),
        ("--tool", tool),
        ("--store", store),
        ("--metrics-address", address),
        ("--lease-seconds", "3".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

/// The answer of a manager that is expected not to start.
async fn refusal(shell: &Shell, config: &Path) -> String {
    let line = format!("{} manager {}", programs::chandler(), manager(shell, config).join(" "));
    let output = shell.run(&line, &[], Duration::from_secs(20)).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_guides_work_in_their_order() {
    let shell = Shell::with_clusterctl("guides").await;
    let plane = testing::sandbox().await.unwrap().management();
    let (client, config) = (plane.client().await.unwrap(), plane.kubeconfig_path());
    let environment = [("KUBECONFIG", &*config.to_string_lossy())];
    let here = |line: &str| format!("cd {} && {line}", root().display());
    let providers = Providers::new(&shell.home.join("providers"), &client).await;
    providers.chandler().await;
    let kinds = providers.other().await;
    shell.configure_clusterctl(&providers.config());
    shell.expect(INIT_CORE, &environment).await;
    settled(&client).await;
    // Before its webhooks, behind which nobody answers here.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let clusterctl = PostParams { field_manager: Some("clusterctl".to_owned()), ..PostParams::default() };
    for kind in kinds {
        definitions.create(&clusterctl, &serde_json::from_value(kind).unwrap()).await.unwrap();
    }
    let addon = Addon::new(&shell, &client).await;
    shell.expect("clusterctl init --addon helm", &environment).await;
    settled(&client).await;
    apply::apply(&client, &lease()).await.unwrap();
    let placements: Api<HelmChartProxy> = Api::namespaced(client.clone(), "default");
    let (kept, records, deployment) =
        (placements.get("kept").await.unwrap(), addon.records().await, addon.deployment().await);

    for (flag, complaint) in [
        ("", "- .spec.conversion.strategy"),
        ("--force-conflicts", "spec.conversion.webhookClientConfig: Forbidden"),
    ] {
        let server_side = format!("chandler crds | kubectl apply --server-side {flag} -f -");
        let output = shell.run(&server_side, &environment, Duration::from_secs(20)).await;
        let complained = text(&output.stderr);
        assert!(!output.status.success() && complained.contains(complaint), "{complained}");
    }
    let refused = refusal(&shell, &config).await;
    let lease = "kubectl delete lease controller-leader-election-caaph --namespace caaph-system";
    assert!(refused.contains(lease), "{refused}");
    let migrating = commands_of(MIGRATING);
    assert!(migrating.iter().any(|line| line == lease), "{migrating:?}");
    for line in migrating {
        if line == lease {
            assert!(refusal(&shell, &config).await.contains(lease), "the Lease outlives its holder");
        }
        shell.expect(&here(&line), &environment).await;
    }
    for ours in chandler_api::crds() {
        let conversion = definitions.get(&ours.name_any()).await.unwrap().spec.conversion.unwrap();
        assert_eq!((conversion.strategy.as_str(), conversion.webhook), ("None", None));
    }
    assert_eq!(placements.get("kept").await.unwrap().uid(), kept.uid());

    let manager = installed_manager(&shell, plane).await;
    addon.adopted().await;
    assert_eq!(addon.records().await[0].data, records[0].data, "the record stays as it is");
    assert_eq!(addon.deployment().await.metadata.generation, deployment.metadata.generation);
    for line in commands_of(USING) {
        shell.expect(&here(&line), &environment).await;
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
    upgraded(&shell, &environment, &client).await;
    deleted(&shell, &environment, &client).await;
    assert_eq!(addon.records().await.len(), 1, "add-ons outlive what looked after them");
    assert!(placements.get_opt("kept").await.unwrap().is_some(), "and so do the objects");
    newcomer(&shell, &environment, &addon.repository).await;
}

/// A manager that serves hooks.
async fn installed_manager(shell: &Shell, plane: &Plane) -> Child {
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let endpoint = format!("https://{address}");
    installed::manager(plane, &shell.home, &["--hooks-endpoint", &endpoint, "--hooks-address", &address])
        .await
}

/// The version that is installed.
async fn installed_version(client: &Client) -> Option<String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-system");
    let containers = deployments.get_opt("chandler-manager").await.unwrap()?.spec?.template.spec?.containers;
    containers[0].image.as_deref()?.rsplit_once(':').map(|(_, tag)| tag.to_owned())
}

async fn upgraded(shell: &Shell, environment: &[(&str, &str)], client: &Client) {
    let plan = shell.expect("clusterctl upgrade plan", environment).await;
    let offered = plan.lines().any(|line| line.contains("addon-chandler") && line.contains(NEWER));
    assert!(offered, "{plan}");
    assert_eq!(installed_version(client).await.as_deref(), Some(OLDER));
    shell.expect(&format!("clusterctl upgrade apply --addon chandler:{NEWER}"), environment).await;
    assert_eq!(installed_version(client).await.as_deref(), Some(NEWER));
}

async fn deleted(shell: &Shell, environment: &[(&str, &str)], client: &Client) {
    let plane = testing::sandbox().await.unwrap().management();
    let manager = installed_manager(shell, plane).await;
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let hooks: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let registered = async || hooks.list(&ListParams::default()).await.unwrap().items.len();
    until("hooks are registered", async || registered().await == 1).await;
    manager.stop(Duration::from_secs(10)).await;
    shell.expect("clusterctl delete --addon chandler", environment).await;
    assert_eq!(installed_version(client).await, None);
    until("the registration of hooks goes too", async || registered().await == 0).await;
}

/// The path of the guide for newcomers. Its repository is out of reach here; its chart is not.
async fn newcomer(shell: &Shell, environment: &[(&str, &str)], repository: &ChartRepository) {
    let module = go_module::folder(&shell.home, "sigs.k8s.io/descheduler@v0.36.0");
    repository.publish_version(&module.join("charts/descheduler"), "0.34.0").unwrap();
    let guide = starting();
    let examples = blocks(&guide, "yaml");
    let [example] = examples.as_slice() else { panic!("the guide has one example") };
    let example =
        example.join("\n").replace("https://kubernetes-sigs.github.io/descheduler", repository.url());
    let example = format!("{example}\n  tlsConfig: {{caSecret: {{name: ca}}}}\n");
    std::fs::write(shell.home.join("descheduler.yaml"), example).unwrap();
    let plane = testing::sandbox().await.unwrap().management();
    let mut manager = None;
    let mut answers = ["next step: correct the chart name or version", "alpha: Ready, descheduler 0.34.0"].into_iter();
    for line in started() {
        let there = format!("cd {} && {line}", shell.home.display());
        if line == "chandler describe descheduler" {
            let answer = answers.next().unwrap();
            until(answer, async || shell.expect(&there, environment).await.contains(answer)).await;
        } else {
            shell.expect(&there, environment).await;
        }
        if line.starts_with("clusterctl init") {
            manager = Some(installed_manager(shell, plane).await);
        }
    }
    assert_eq!(answers.next(), None);
    manager.unwrap().stop(Duration::from_secs(10)).await;
}

#[test]
fn the_guide_knows_every_field() {
    let definition = HelmChartProxy::crd();
    let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let mut fields = BTreeSet::new();
    collect(&schema.properties.unwrap()["spec"], &mut fields);
    assert!(fields.contains("cleanupOnFail"), "{fields:?}");
    let guide = document(USING);
    let words: BTreeSet<&str> =
        guide.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let missing: Vec<_> = fields.iter().filter(|field| !words.contains(field.as_str())).collect();
    assert!(missing.is_empty(), "the guide does not mention {missing:?}");
}

fn collect(schema: &JSONSchemaProps, fields: &mut BTreeSet<String>) {
    for (name, schema) in schema.properties.iter().flatten() {
        fields.insert(name.clone());
        collect(schema, fields);
    }
}
