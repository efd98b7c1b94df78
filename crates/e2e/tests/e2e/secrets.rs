//! No output contains a secret, even at the most verbose log level. This test checks the output of the commands; the test
//! harness checks everything else (see `canary.rs`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use chandler_e2e::{
    canary::Secrets,
    extension_world::ExtensionWorld,
    manager::Manager,
    programs,
    wait::eventually,
    world::{World, condition, config_value, hello},
};
use chandler_sandbox::{
    chart::{self, Package},
    registry::{CREDENTIALS, Registry},
    repository::{Authentication, ChartRepository},
};
use serde_json::{Value, json};

fn secret(world: &World, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": world.namespace},
        "stringData": data,
    })
}

/// Writes a chart whose template fails in different ways, each with an error that contains a value.
fn leaking_chart(world: &World) -> PathBuf {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: leaking\nversion: 1.0.0\n"),
        ("values.yaml", "how: fine\nwhat: nothing\n"),
        (
            "templates/config.yaml",
            "{{- if eq .Values.how \"fail\" }}{{ fail (printf \"I do not like %s\" .Values.what) }}{{ end }}\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
             {{- if eq .Values.how \"text\" }}\ndata: {{ .Values.what | quote }}\n\
             {{- else if eq .Values.how \"yaml\" }}\n{{ .Values.what }}: {\n\
             {{- else if eq .Values.how \"name\" }}\ndata: {\"{{ .Values.what }} !\": x}\n\
             {{- else }}\ndata: {what: {{ .Values.what | quote }}}\n{{- end }}\n",
        ),
        (
            "templates/hook.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n\
             \x20 annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}\ndata: {what: {{ .Values.what | quote }}}\n",
        ),
    ];
    chart::write(&world.dir.join("leaking"), &files).unwrap()
}

#[tokio::test]
async fn no_output_contains_a_secret() {
    let test = ExtensionWorld::new("secrets").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    // The driver uses this level too.
    let manager = world.start_manager_with(&["--log-level", "trace"]);

    use_private_repository(world).await;
    use_private_registry(world).await;
    use_invalid_values(world).await;
    let greeting = use_secret_parameters(&test).await;
    assert_eq!(config_value(&alpha, "kept", "greeting").await.unwrap(), format!("{greeting} from somewhere"));

    let log = manager.logs();
    let driver = "\"target\":\"chandler_tool::driver\"";
    assert!(log.contains("\"level\":\"TRACE\""), "the manager does not log at level trace");
    assert!(
        log.lines().any(|line| line.contains(driver) && line.contains("\"level\":\"DEBUG\"")),
        "the driver does not log at level debug"
    );
    assert_commands_leak_nothing(world, &manager);
}

async fn use_private_repository(world: &World) {
    let guard =
        Authentication::Basic { user: "user".to_owned(), password: "canary-of-a-repository".to_owned() };
    let served = world.dir.join("private");
    let repository =
        ChartRepository::start_with_authentication(world.sandbox.authority(), &served, guard).await.unwrap();
    repository.publish(&hello()).unwrap();
    let login = json!({"username": "user", "password": "canary-of-a-repository"});
    world.apply(&secret(world, "login", &login)).await;
    let credentials = json!({"secret": {"name": "login"}, "key": ""});
    let values = "greeting: canary-in-values\n";
    world
        .apply_placement(
            "private",
            "hello",
            json!({"repoURL": repository.url(), "credentials": credentials, "valuesTemplate": values}),
        )
        .await;
    world.wait_ready("private", "alpha", 1).await;
    let wrong = json!({"username": "user", "password": "canary-wrong-password"});
    world.apply(&secret(world, "wrong", &wrong)).await;
    let credentials = json!({"secret": {"name": "wrong"}, "key": ""});
    world
        .apply_placement("refused", "hello", json!({"repoURL": repository.url(), "credentials": credentials}))
        .await;
    world
        .wait_status("refused", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
}

async fn use_private_registry(world: &World) {
    let home = world.dir.join("registry");
    let registry =
        Registry::start_with_authentication(world.sandbox.assets(), world.sandbox.authority(), &home)
            .await
            .unwrap();
    registry.push(&Package::pack(&hello(), None).unwrap()).await.unwrap();
    let (username, password) = CREDENTIALS;
    let config = json!({"auths": {registry.host(): {"username": username, "password": password}}});
    world.apply(&secret(world, "docker", &json!({"config.json": config.to_string()}))).await;
    let credentials = json!({"secret": {"name": "docker"}, "key": "config.json"});
    world
        .apply_placement("registry", "hello", json!({"repoURL": registry.url(), "credentials": credentials}))
        .await;
    world.wait_ready("registry", "alpha", 1).await;
    registry.stop().await;
}

async fn use_invalid_values(world: &World) {
    world.repository.publish(&leaking_chart(world)).unwrap();
    for (name, values) in [
        ("fail", "how: fail\nwhat: canary-that-fails"),
        ("text", "how: text\nwhat: canary-as-text"),
        ("yaml", "how: yaml\nwhat: canary-as-yaml"),
        ("name", "how: name\nwhat: canary-as-name"),
        ("type", "how: {canary-in-a-map: 1}\nwhat: [canary-in-a-list]"),
        ("broken", "how: [canary-broken\n  - {"),
    ] {
        world.apply_placement(name, "leaking", json!({"valuesTemplate": values})).await;
        world.wait_status(name, "alpha", "failed", |status| status.last_failure.is_some()).await;
    }
    for (name, template) in [
        ("literal", "how: {{ index (list \"canary-in-code\") 7 }}"),
        ("unparsed", "how: {{ upper \"canary-in-code\" \"}}"),
    ] {
        world.apply_placement(name, "leaking", json!({"valuesTemplate": template})).await;
        eventually(&format!("the template {name} fails"), || async {
            let status = world.placements().get(name).await.unwrap().status?;
            status.conditions.into_iter().find(|c| c.reason == "ValueParsingFailed")
        })
        .await;
    }
}

/// Uses valid and invalid parameters from a Secret. Returns the greeting of the valid ones.
async fn use_secret_parameters(test: &ExtensionWorld) -> &'static str {
    let greeting = "canary-from-a-secret";
    let data = json!({"greeting": greeting, "broken": "{canary-not-yaml", "values.yaml": "replicas: canary-not-a-number"});
    test.world.apply(&secret(&test.world, "parameters", &data)).await;
    let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "parameters": {"schema": schema}}]);
    test.apply_extension("kept", versions.clone(), json!({})).await;
    let from = json!([{"secret": {"name": "parameters", "key": "greeting"}, "parameter": "greeting"}]);
    test.apply_instance("kept", "kept", json!({"parametersFrom": from})).await;
    let release = test.wait_ready("kept", "alpha", "1.0.0").await;
    assert!(release.spec.values.is_none() && release.spec.values_secret.is_some());
    let spec = serde_json::to_string(&release.spec).unwrap();
    assert_eq!(Secrets::default().find_leak(&spec), None, "the values are in a Secret");
    for key in ["broken", "values.yaml"] {
        let name = format!("refused-{}", key.replace('.', "-"));
        let from = json!([{"secret": {"name": "parameters", "key": key}}]);
        test.apply_extension(&name, versions.clone(), json!({})).await;
        test.apply_instance(&name, &name, json!({"parametersFrom": from})).await;
        test.wait_instance_reason(&name, "ResolutionFailed").await;
    }
    greeting
}

/// Checks the output of commands and the content of a support bundle.
fn assert_commands_leak_nothing(world: &World, manager: &Manager) {
    let bundle = world.dir.join("support.tar.gz");
    let address = manager.address().unwrap();
    let log = manager.log_file().to_str().unwrap().to_owned();
    let lines = [
        vec!["get"],
        vec!["get", "--output", "wide"],
        vec!["get", "--output", "json"],
        vec!["describe", "private"],
        vec!["describe", "fail"],
        vec!["describe", "--cluster", "alpha", "--output", "json"],
        vec!["logs", "fail"],
        vec!["logs", "literal"],
        vec!["doctor"],
        vec!["doctor", "--output", "json"],
        vec![
            "support-bundle",
            "--output-file",
            bundle.to_str().unwrap(),
            "--manager-address",
            &address,
            "--manager-log",
            &log,
        ],
    ];
    let secrets = world.secrets();
    for line in lines {
        let mut command = Command::new(programs::chandler());
        command.args(&line).args(["--namespace", &world.namespace]);
        command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() || line[0] == "doctor", "{line:?}: {text}");
        assert_eq!(secrets.find_leak(&text), None, "{line:?}");
    }
    let files = unpack(&bundle);
    for (name, text) in &files {
        assert_eq!(secrets.find_leak(text), None, "{name}");
    }
    for (name, expected) in [
        ("logs/manager.log", "\"level\":\"TRACE\""),
        ("metrics/manager.txt", "chandler_reconciles_total"),
        ("doctor.json", "rights"),
        ("objects/helmreleaseproxies.addons.cluster.x-k8s.io.json", "REDACTED"),
    ] {
        assert!(files[name].contains(expected), "{name} does not contain {expected}");
    }
}

/// Returns the files of a support bundle.
pub fn unpack(bundle: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(bundle).unwrap()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        (name.strip_prefix("chandler-support/").unwrap().to_owned(), text)
    };
    archive.entries().unwrap().map(read).collect()
}
