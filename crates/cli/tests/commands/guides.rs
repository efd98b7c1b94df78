//! The guides for users of HelmChartProxy, on a management cluster that another provider has looked after so far.

use std::{collections::BTreeSet, path::Path, time::Duration};

use chandler_api::addons::HelmChartProxy;
use chandler_sandbox::{
    apply,
    process::{Child, Spec},
    testing,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

use crate::{
    documents::{blocks, commands, document, root},
    shell::{CHANDLER, Shell, text},
};

pub const MIGRATING: &str = "docs/guides/migrating-from-caaph.md";
pub const USING: &str = "docs/guides/helm-chart-proxy.md";

/// The other provider as `clusterctl init` installs it, as far as it matters here.
fn other_provider() -> Vec<Value> {
    let webhook = |name: &str, path: &str| {
        json!({
            "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": "caaph-system", "name": "caaph-webhook-service", "path": path}},
            "rules": [{
                "apiGroups": ["addons.cluster.x-k8s.io"], "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["helmchartproxies"],
            }],
        })
    };
    let pods = json!({"control-plane": "controller-manager"});
    let container = json!({"name": "manager", "image": "controller:latest"});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "caaph-system"}}),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "caaph-controller-manager", "namespace": "caaph-system"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": pods},
                "template": {"metadata": {"labels": pods}, "spec": {"containers": [container]}},
            },
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "controller-leader-election-caaph", "namespace": "caaph-system"},
            "spec": {"holderIdentity": "caaph-controller-manager-7c9f8d6b5-abcde"},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "caaph-mutating-webhook-configuration"},
            "webhooks": [webhook("helmchartproxy.kb.io", "/mutate")],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "caaph-validating-webhook-configuration"},
            "webhooks": [webhook("vhelmchartproxy.kb.io", "/validate")],
        }),
    ]
}

/// Its definitions, which ask a webhook for conversion, and an object of a user's.
async fn set_up(client: &Client) {
    let conversion = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"namespace": "caaph-system", "name": "caaph-webhook-service", "path": "/convert"}},
        "conversionReviewVersions": ["v1"],
    }});
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut definition in chandler_api::crds() {
        definition.spec.conversion = Some(serde_json::from_value(conversion.clone()).unwrap());
        let clusterctl = PostParams { field_manager: Some("clusterctl".to_owned()), ..PostParams::default() };
        definitions.create(&clusterctl, &definition).await.unwrap();
    }
    let kept = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {
            "name": "kept", "namespace": "default", "finalizers": ["helmchartproxy.addons.cluster.x-k8s.io"],
        },
        "spec": {
            "clusterSelector": {"matchLabels": {"none": "such"}},
            "repoURL": "https://charts.example", "chartName": "kept",
        },
    });
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while let Err(error) = apply::apply(client, &kept).await {
        assert!(std::time::Instant::now() < deadline, "the kinds are not served: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for object in other_provider() {
        apply::apply(client, &object).await.unwrap();
    }
}

fn manager(shell: &Shell, config: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let tool = std::env::var("CHANDLER_TOOL").expect("run these tests with `cargo xtask test`");
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
    let line = format!("{CHANDLER} manager {}", manager(shell, config).join(" "));
    let output = shell.run(&line, &[], Duration::from_secs(20)).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[tokio::test]
async fn the_commands_of_the_guides_work_in_their_order() {
    let shell = Shell::new("guides").await;
    let plane = testing::sandbox().await.unwrap().management();
    let (client, config) = (plane.client().await.unwrap(), plane.kubeconfig_path());
    set_up(&client).await;
    let placements: Api<HelmChartProxy> = Api::namespaced(client.clone(), "default");
    let kept = placements.get("kept").await.unwrap();
    let environment = [("KUBECONFIG", &*config.to_string_lossy())];
    let here = |line: &str| format!("cd {} && {line}", root().display());

    for (flag, complaint) in [
        ("", "conflict with \"clusterctl\" using apiextensions.k8s.io/v1: .spec.conversion.strategy"),
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
    for line in commands(&document(MIGRATING)) {
        if line == lease {
            assert!(refusal(&shell, &config).await.contains(lease), "the Lease outlives its holder");
        }
        shell.expect(&here(&line), &environment).await;
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for ours in chandler_api::crds() {
        let conversion = definitions.get(&ours.name_any()).await.unwrap().spec.conversion.unwrap();
        assert_eq!((conversion.strategy.as_str(), conversion.webhook), ("None", None));
    }
    assert_eq!(placements.get("kept").await.unwrap().uid(), kept.uid());

    let args = ["manager".to_owned()].into_iter().chain(manager(&shell, &config)).collect();
    let spec = Spec {
        name: "manager".to_owned(),
        program: CHANDLER.into(),
        args,
        env: Vec::new(),
        home: shell.home.clone(),
    };
    let manager = Child::spawn(&spec).unwrap();
    for line in commands(&document(USING)) {
        shell.expect(&here(&line), &environment).await;
    }
    for example in blocks(&document(USING), "yaml") {
        let file = shell.home.join("example.yaml");
        std::fs::write(&file, example.join("\n")).unwrap();
        let line = format!("kubectl apply --dry-run=server --validate=strict -f {}", file.display());
        shell.expect(&line, &environment).await;
    }
    assert!(manager.is_running());
    manager.stop(Duration::from_secs(10)).await;
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
