//! `chandler tunnel`: its patches with the CRDs of real providers, and its commands with a manager, a hub and an agent.

use std::{path::Path, process::Command, time::Duration};

use chandler_e2e::{
    go_module,
    hub::Hub,
    manager::Manager,
    shell::{Shell, text},
    tunnel_world::TunnelWorld,
};
use chandler_sandbox::{apply, plane::Plane, testing};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, config::Kubeconfig};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::documents::root;

const SANDBOX_MODULE: &str = "sigs.k8s.io/cluster-api";

/// The control plane template of each provider.
const PROVIDERS: [(&str, &str); 3] = [
    ("kubeadm", "KubeadmControlPlaneTemplate"),
    ("rke2", "RKE2ControlPlaneTemplate"),
    ("k3s", "KThreesControlPlaneTemplate"),
];

/// The CRD of kubeadm's template, in the Go module of Cluster API. The modules of the other providers are not in every
/// module proxy.
const KUBEADM_CRD: &str =
    "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanetemplates.yaml";

/// Returns a ClusterClass with the printed variables and patches.
fn cluster_class(provider: &str, kind: &str, printed: &Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
        "metadata": {"name": format!("tunnel-{provider}"), "namespace": "default"},
        "spec": {
            "infrastructure": {"templateRef": {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "SandboxClusterTemplate",
                "name": "tunnel",
            }},
            "controlPlane": {"templateRef": {
                "apiVersion": selector(printed)["apiVersion"], "kind": kind, "name": "tunnel",
            }},
            "variables": printed["variables"],
            "patches": printed["patches"],
        },
    })
}

fn selector(printed: &Value) -> &Value {
    &printed["patches"][0]["definitions"][0]["selector"]
}

/// Returns the template of kubeadm as Cluster API patches it for the Cluster `blue`.
fn patched_kubeadm_template(printed: &Value) -> Value {
    let mut template = json!({
        "apiVersion": selector(printed)["apiVersion"], "kind": "KubeadmControlPlaneTemplate",
        "metadata": {"name": "tunnel", "namespace": "default"},
        "spec": {"template": {"spec": {"kubeadmConfigSpec": {"format": "cloud-config"}}}},
    });
    let operations = printed["patches"][0]["definitions"][0]["jsonPatches"].as_array().unwrap();
    assert_eq!(operations.len(), 1, "the list of files is added as a whole");
    let value = operations[0]["valueFrom"]["template"].as_str().unwrap();
    let files: Value = serde_saphyr::from_str(&value.replace("{{ .builtin.cluster.name }}", "blue")).unwrap();
    assert_eq!(files[1]["contentFrom"]["secret"]["name"], "blue-tunnel");
    let path = operations[0]["path"].as_str().unwrap();
    let (parent, field) = path.rsplit_once('/').unwrap();
    template.pointer_mut(parent).unwrap()[field] = files;
    template
}

const APPLY_STRICTLY: &str = "kubectl apply --server-side --validate=strict --dry-run=server -f";

#[tokio::test]
async fn cluster_api_accepts_the_patches() {
    let shell = Shell::new("tunnel-patch").await;
    let kubeconfig = testing::sandbox().await.unwrap().management().kubeconfig_path();
    for (provider, kind) in PROVIDERS {
        for option in ["", " --without-files"] {
            let line = format!("chandler tunnel patch --for {provider}{option} --output json");
            let printed: Value = serde_json::from_str(&shell.expect(&line, &[]).await).unwrap();
            let file = shell.home.join("class.json");
            std::fs::write(&file, cluster_class(provider, kind, &printed).to_string()).unwrap();
            let environment = [("KUBECONFIG", &*kubeconfig.to_string_lossy())];
            shell.expect(&format!("{APPLY_STRICTLY} {}", file.display()), &environment).await;
        }
    }
}

#[tokio::test]
async fn a_patched_control_plane_template_of_kubeadm_is_valid() {
    let shell = Shell::new("tunnel-template").await;
    let plane = testing::bare_plane().await.unwrap();
    let crd = go_module::of_sandbox(SANDBOX_MODULE).await.join(KUBEADM_CRD);
    apply::apply_all(&plane.client().await.unwrap(), &std::fs::read_to_string(crd).unwrap()).await.unwrap();
    let yaml = shell.expect("chandler tunnel patch --for kubeadm --without-files", &[]).await;
    let printed: Value = serde_saphyr::from_str(&yaml).unwrap();
    let file = shell.home.join("template.json");
    std::fs::write(&file, patched_kubeadm_template(&printed).to_string()).unwrap();
    let wait = "until kubectl wait --for=condition=Established \
                crd/kubeadmcontrolplanetemplates.controlplane.cluster.x-k8s.io; do sleep 0.2; done";
    let kubeconfig = plane.kubeconfig_path();
    let environment = [("KUBECONFIG", &*kubeconfig.to_string_lossy())];
    shell.expect(&format!("{wait} && {APPLY_STRICTLY} {}", file.display()), &environment).await;
}

/// Runs `chandler` against the management cluster of a test.
struct Commands {
    shell: Shell,
    kubeconfig: String,
    namespace: String,
}

impl Commands {
    async fn new(test: &TunnelWorld) -> Self {
        let kubeconfig = test.world.sandbox.management().kubeconfig_path().to_string_lossy().into_owned();
        Self { shell: Shell::new("tunnel").await, kubeconfig, namespace: test.world.namespace.clone() }
    }

    fn line(&self, arguments: &str) -> String {
        // Options go before the `--` of `connect`.
        let (command, rest) = match arguments.split_once(" -- ") {
            Some((command, rest)) => (command, format!(" -- {rest}")),
            None => (arguments, String::new()),
        };
        format!("chandler tunnel {command} --namespace {}{rest}", self.namespace)
    }

    async fn expect(&self, arguments: &str) -> String {
        self.shell.expect(&self.line(arguments), &[("KUBECONFIG", &self.kubeconfig)]).await
    }

    /// Runs a command that must fail. Returns its exit code and stderr.
    async fn fail(&self, arguments: &str) -> (i32, String) {
        let environment = [("KUBECONFIG", &*self.kubeconfig)];
        let output = self.shell.run(&self.line(arguments), &environment, Duration::from_mins(1)).await;
        assert!(!output.status.success(), "`{arguments}` succeeded");
        (output.status.code().unwrap(), text(&output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_manage_a_tunnel() {
    let test = TunnelWorld::exclusive("tunnel-commands").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    test.create_cluster("blue", &json!({})).await;
    let commands = Commands::new(&test).await;

    assert!(commands.expect("get").await.starts_with("No tunnel found"));
    assert!(commands.fail("describe blue").await.1.contains("chandler tunnel enable blue"));
    assert!(commands.fail("enable nowhere").await.1.contains("there is no Cluster nowhere"));
    assert!(commands.expect("enable blue").await.contains("is enabled."));
    let agent = test.start_agent("blue").await;
    let enabled = commands.expect("enable blue --wait --wait-seconds 100").await;
    assert!(enabled.contains("is enabled already.") && enabled.contains("is ready."), "{enabled}");

    show(&commands).await;
    reach(&test, &commands).await;
    let served = metrics(&manager, &hub).await;
    tokio::task::block_in_place(|| assert_queries_work(&test, &served));

    assert!(
        commands.fail("revoke blue").await.1.contains("--yes"),
        "without a terminal, it must be confirmed"
    );
    assert!(commands.expect("revoke blue --yes").await.contains("epoch 2"));
    test.wait_connected("blue", false).await;
    let described = commands.expect("describe blue").await;
    assert!(described.contains("next step: ") && described.contains("epoch 2"), "{described}");
    assert!(commands.expect("disable blue").await.contains("is disabled."));
    test.wait_proxied("blue", false).await;
    assert!(commands.expect("disable blue").await.contains("is not enabled."));

    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}

async fn show(commands: &Commands) {
    let table = commands.expect("get").await;
    assert!(
        table.lines().nth(1).is_some_and(|line| line.contains("blue") && line.contains("Ready")),
        "{table}"
    );
    let json = commands.expect("get --output json").await;
    let listed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&listed[0]["cluster"], &listed[0]["state"]), (&json!("blue"), &json!("Ready")));
    assert!(!listed[0]["agents"].as_array().unwrap().is_empty(), "{listed:#}");
    assert!(!json.contains("token") && !json.contains("PRIVATE KEY"), "{json}");
    let described = commands.expect("describe blue").await;
    assert!(
        described.contains("state: Ready") && described.contains("KubeconfigProxied   True"),
        "{described}"
    );
    let yaml: Value = serde_saphyr::from_str(&commands.expect("describe blue --output yaml").await).unwrap();
    assert_eq!(yaml["epoch"], 1);
}

/// Returns the metrics of manager and hub, as Prometheus has them.
async fn metrics(manager: &Manager, hub: &Hub) -> String {
    let mut stream = TcpStream::connect(hub.place.metrics).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut of_hub = String::new();
    stream.read_to_string(&mut of_hub).await.unwrap();
    let of_manager = manager.get("/metrics").await;
    let body = |response: &str| response.split_once("\r\n\r\n").unwrap().1.to_owned();
    // Both have it, and a file may contain it once.
    let is_own = |line: &&str| !line.contains("chandler_build");
    let of_hub = body(&of_hub).lines().filter(is_own).collect::<Vec<_>>().join("\n");
    body(&of_manager).replace("# EOF\n", "") + &of_hub + "\n"
}

/// Runs the queries of the dashboard and the alerts of tunnels with Prometheus. No alert fires.
fn assert_queries_work(test: &TunnelWorld, served: &str) {
    let (file, monitoring) = (test.world.dir.join("metrics.txt"), root().join("deploy/monitoring"));
    std::fs::write(&file, served).unwrap();
    let mut command = Command::new("go");
    command.current_dir(root().join("tools/promcheck")).env("CGO_ENABLED", "0").args(["run", "."]);
    command.arg("--metrics").arg(file);
    command.arg("--dashboard").arg(monitoring.join("tunnel-dashboard.json").canonicalize().unwrap());
    command.arg("--rules").arg(monitoring.join("tunnel-alerts.yaml").canonicalize().unwrap());
    let output = command.output().expect("Go is installed");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Reaches the cluster as a user outside of the management cluster does.
async fn reach(test: &TunnelWorld, commands: &Commands) {
    let hub = test.proxy.address();
    let namespaces = commands.expect(&format!("connect blue --hub {hub} -- kubectl get namespaces")).await;
    assert!(namespaces.contains("kube-system"), "{namespaces}");
    let inside = r#"sh -c 'stat -c "%a %n" "$KUBECONFIG"'"#;
    let shown = commands.expect(&format!("connect blue --hub {hub} -- {inside}")).await;
    let (mode, path) = shown.trim().split_once(' ').unwrap();
    assert_eq!(mode, "600");
    assert!(!Path::new(path).exists(), "the kubeconfig is removed");
    let (code, _) = commands.fail(&format!("connect blue --hub {hub} -- sh -c 'exit 3'")).await;
    assert_eq!(code, 3);
    let file = commands.shell.home.join("blue.kubeconfig");
    let printed = commands.expect(&format!("kubeconfig blue --hub {hub}")).await;
    std::fs::write(&file, printed).unwrap();
    let line = format!("kubectl --kubeconfig {} get namespaces", file.display());
    assert!(commands.shell.expect(&line, &[]).await.contains("kube-system"));
}

/// The Deployment of the agent is only stored here, because no container runs. A process has its configuration instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_cluster_is_imported() {
    let test = TunnelWorld::exclusive("tunnel-import").await;
    let manager = test.start_manager();
    let hub = test.start_hub(&test.hub_place("a")).await;
    let child = testing::bare_plane().await.unwrap();
    let server = child_server(&child);
    let (host, port) = server.rsplit_once(':').unwrap();
    test.world
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "legacy", "namespace": test.world.namespace},
            "spec": {
                "controlPlaneEndpoint": {"host": host, "port": port.parse::<u16>().unwrap()},
                // Cluster API requires a reference. There is no such object, because no provider has created the cluster.
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SandboxCluster", "name": "legacy",
                },
            },
        }))
        .await;
    let commands = Commands::new(&test).await;
    let line =
        format!("import legacy --child-kubeconfig {} --wait-seconds 0", child.kubeconfig_path().display());
    let output = commands.expect(&line).await;
    assert!(output.contains("Secret") && output.contains("is created."), "{output}");

    let client = child.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-agent");
    assert_eq!(deployments.get("chandler-agent").await.unwrap().spec.unwrap().replicas, Some(2));
    let secrets: Api<Secret> = Api::namespaced(client, "chandler-agent");
    let files = secrets.get("chandler-agent").await.unwrap().data.unwrap();
    let mut configuration: Value =
        serde_saphyr::from_str(std::str::from_utf8(&files["agent.yaml"].0).unwrap()).unwrap();
    assert_eq!(configuration["target"], "kubernetes.default.svc:443");
    configuration["target"] = json!(server);
    let agent = test.start_agent_with("legacy", &configuration.to_string());
    commands.expect("enable legacy --wait --wait-seconds 100").await;
    let address = test.proxy.address();
    let namespaces =
        commands.expect(&format!("connect legacy --hub {address} -- kubectl get namespaces")).await;
    assert!(namespaces.contains("chandler-agent"), "{namespaces}");
    let again = commands.expect(&line).await;
    assert!(again.contains("exists, and is kept."), "{again}");

    agent.stop().await;
    hub.stop().await;
    manager.stop().await;
}

/// Returns host and port of the API server in the kubeconfig of a control plane.
fn child_server(child: &Plane) -> String {
    let config = Kubeconfig::read_from(child.kubeconfig_path()).unwrap();
    let server = config.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    server.strip_prefix("https://").unwrap().trim_end_matches('/').to_owned()
}
