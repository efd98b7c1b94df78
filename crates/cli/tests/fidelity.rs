//! Charts render through the driver exactly as through the reference CLI, whatever the values.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so by failing")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use chandler_core::{
    digest::{Digest, InputDigest},
    identity::{ClusterKey, ReleaseId},
    release::{ExecutionOptions, RenderingOptions},
};
use chandler_sandbox::{assets::Binary, chart::Package, plane::Plane, testing};
use chandler_tool::{ApplyKind, ApplyOrder, PackageFile, PackageTool, Supervisor, SupervisorConfig};
use chandler_workload::target_from_kubeconfig;
use tokio_util::sync::CancellationToken;

/// A chart that comes with a Go module.
struct RealChart {
    module: &'static str,
    version: &'static str,
    folder: &'static str,
    values: &'static str,
}

/// Versions are those that the module proxy has and this Go can read. Certificates and other random data are switched
/// off, because no two renderings of them are alike.
const REAL_CHARTS: &[RealChart] = &[
    RealChart {
        module: "sigs.k8s.io/metrics-server",
        version: "v0.9.0",
        folder: "charts/metrics-server",
        values: "
replicas: 0o2
podAnnotations: {octal: '0755', switch: 'on', big: '9007199254740993', empty: ''}
podSecurityContext: {fsGroup: 1000000001}
priorityClassName: null
args: [--kubelet-insecure-tls, --metric-resolution=15s, --port=0123, --switch=off]
# Its API would be announced and never answer.
apiService: {create: off}
",
    },
    RealChart {
        module: "sigs.k8s.io/external-dns",
        version: "v0.20.0",
        folder: "charts/external-dns",
        values: "
provider: {name: webhook, webhook: {image: {repository: example.invalid/webhook, tag: '1.20'}}}
env: [{name: SWITCH, value: 'no'}, {name: OCTAL, value: '0644'}, {name: BIG, value: '12345678901234567890'}]
securityContext: {runAsUser: 2147483647, seccompProfile: null}
interval: 1h
domainFilters: [on.example.invalid, 0x1f.example.invalid]
extraArgs: {some-number: 1e3, some-switch: yes}
serviceMonitor: {interval: null}
",
    },
    RealChart {
        module: "sigs.k8s.io/descheduler",
        version: "v0.36.0",
        folder: "charts/descheduler",
        values: "
kind: Deployment
deschedulingInterval: 5m
cmdOptions: {v: 3, big: 4294967296, dry-run: on}
podAnnotations: {colon: 'a: b', hash: '#x', date: '2020-01-01'}
deschedulerPolicy: {nodeSelector: 'a=b', maxNoOfPodsToEvictPerNode: 010}
resources: {limits: null}
",
    },
    RealChart {
        module: "k8s.io/ingress-nginx",
        version: "v0.0.0-20240708192948-52c50467d67d",
        folder: "charts/ingress-nginx",
        values: "
controller:
  replicaCount: 2
  config: {proxy-body-size: '0', use-gzip: 'on', hsts-max-age: 31536000, error-log-level: null}
  extraEnvs: [{name: A, value: '1_000'}]
  service: {nodePorts: {http: 30_080}}
  admissionWebhooks: {enabled: true}
tcp: {8080: default/web:80}
defaultBackend: {enabled: yes}
",
    },
    RealChart {
        module: "github.com/cilium/cilium",
        version: "v1.20.2",
        folder: "install/kubernetes/cilium",
        values: "
cluster: {name: blue, id: 017}
hubble: {tls: {auto: {method: cronJob}}}
ipam: {operator: {clusterPoolIPv4PodCIDRList: [10.0.0.0/8], clusterPoolIPv4MaskSize: 24}}
bpf: {mapDynamicSizeRatio: 0.0025, policyMapMax: 16384}
extraConfig: {switch: 'off', big: '9223372036854775807'}
operator: {replicas: 1, tolerations: null}
",
    },
    RealChart {
        module: "github.com/kyverno/kyverno",
        version: "v1.13.4",
        folder: "charts/kyverno",
        values: "
global: {image: {registry: example.invalid}}
# Its definitions are several megabytes, more than the record of a release may hold.
crds: {install: off}
grafana: {enabled: true, annotations: {octal: '0777'}}
admissionController: {replicas: 3, priorityClassName: null}
features: {logging: {verbosity: 0b11}}
webhooksCleanup: {enabled: false}
",
    },
];

/// A chart whose templates show every value in every way, with a subchart and globals.
const AWKWARD_CHART: &[(&str, &str)] = &[
    (
        "Chart.yaml",
        "apiVersion: v2\nname: awkward\nversion: 1.0.0\ndependencies:\n- {name: child, version: 1.0.0, condition: child.enabled, import-values: [{child: exported, parent: imported}]}\n- {name: off, version: 1.0.0, condition: off.enabled}\n",
    ),
    (
        "values.yaml",
        "gone: default\nnested: {gone: 1, kept: 2}\nlist: [1, 2]\nglobal: {a: 1, b: 2}\nchild: {size: 010}\n",
    ),
    ("data/file.txt", "text of a file\n"),
    (
        "templates/values.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata:\n  yaml: {{ toYaml .Values | quote }}\n  json: {{ toJson .Values | quote }}\n{{- range $key, $value := .Values }}\n  plain.{{ $key }}: {{ $value | quote }}\n  kind.{{ $key }}: {{ kindOf $value | quote }}\n{{- end }}\n  int: {{ int64 .Values.big | quote }}\n  tpl: {{ tpl .Values.template . | quote }}\n  file: {{ .Files.Get \"data/file.txt\" | quote }}\n  release: {{ printf \"%s %s %d %t\" .Release.Namespace .Release.Service .Release.Revision .Release.IsInstall }}\n  has: {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" | quote }}\n  kubernetes: {{ .Capabilities.KubeVersion.Version }}\n  lookup: {{ (lookup \"v1\" \"Namespace\" \"\" \"kube-system\").metadata | default dict | keys | sortAlpha | first | quote }}\n",
    ),
    ("templates/NOTES.txt", "{{ .Values.big }}\n"),
    (
        "templates/hook.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook\n  annotations: {helm.sh/hook: 'pre-install,post-upgrade', helm.sh/hook-weight: '-3'}\n",
    ),
    ("charts/child/Chart.yaml", "apiVersion: v2\nname: child\nversion: 1.0.0\n"),
    ("charts/child/values.yaml", "enabled: true\nsize: 1\nexported: {from: child}\n"),
    (
        "charts/child/templates/values.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: child}\ndata: {values: {{ toYaml .Values | quote }}}\n",
    ),
    ("charts/off/Chart.yaml", "apiVersion: v2\nname: off\nversion: 1.0.0\n"),
    ("charts/off/templates/x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: never}\n"),
];

const AWKWARD_VALUES: &str = "
big: 9007199254740993
bigger: 12345678901234567890
exponent: 1e10
octal: 0755
newOctal: 0o755
octalText: '0755'
hex: 0xFF
switch: on
noswitch: off
yes: no
text: 'yes'
date: 2020-01-01
sexagesimal: 190:20:30
empty:
tilde: ~
gone: null
nested: {gone: null, added: {deep: [1, {a: b}, null]}}
list: [3]
float: 1.0
negative: -0
unicode: 'ünï ☃'
multiline: |
  a: b
  - c
folded: >-
  one
  two
template: '{{ .Values.big }}-{{ .Release.Name }}-{{ include \"x\" . }}{{ define \"x\" }}x{{ end }}'
quoted: \"tab\\there\"
anchors: {a: &a {x: 1}, b: *a}
global: {b: null, c: 0123}
child: {size: null, enabled: true, extra: on}
off: {enabled: false}
";

struct Bench {
    plane: Plane,
    tool: PackageTool,
    helm: PathBuf,
    folder: PathBuf,
}

impl Bench {
    async fn new() -> Self {
        let driver = std::env::var("CHANDLER_TOOL").expect(
            "CHANDLER_TOOL names the driver under test: run `cargo xtask test`, which builds and names it",
        );
        Self {
            plane: testing::bare_plane().await.unwrap(),
            tool: PackageTool::new(Supervisor::new(SupervisorConfig::new(driver))),
            helm: testing::assets().await.unwrap().path(Binary::Helm).to_owned(),
            folder: testing::fresh_dir("fidelity").await.unwrap(),
        }
    }

    /// What the CLI renders is what the driver stores.
    async fn compare(&self, name: &str, chart: &Path, values: &str) {
        let bytes = Package::pack(chart, None).unwrap().bytes;
        let (package, file) =
            (self.folder.join(format!("{name}.tgz")), self.folder.join(format!("{name}.yaml")));
        fs::write(&package, &bytes).unwrap();
        fs::write(&file, values).unwrap();
        let (archive, file) = (package.to_str().unwrap(), file.to_str().unwrap());
        let expected = self.helm(name, &["template", name, archive, "--values", file, "--dry-run=server"]);

        self.apply(name, PackageFile { path: package.clone(), digest: Digest::of(&bytes) }, values).await;
        let stored =
            self.helm(name, &["get", "manifest", name]) + "\n" + &self.helm(name, &["get", "hooks", name]);
        let (expected, stored) = (documents(&expected), documents(&stored));
        assert!(!expected.is_empty(), "{name} renders nothing");
        for (expected, stored) in expected.iter().zip(&stored) {
            assert_eq!(stored, expected, "{name}");
        }
        assert_eq!(stored.len(), expected.len(), "{name}");
    }

    async fn apply(&self, name: &str, package: PackageFile, values: &str) {
        let order = ApplyOrder {
            operation_id: name.to_owned(),
            target: target_from_kubeconfig(&ClusterKey::new("fidelity", "bare"), self.plane.kubeconfig())
                .unwrap(),
            release: ReleaseId::new(name, name),
            package,
            values: values.to_owned(),
            kind: ApplyKind::Install,
            inputs: InputDigest::parse(&"0".repeat(40)).unwrap(),
            // Nothing runs on a bare plane, so no hook would end; they are stored nevertheless.
            rendering: RenderingOptions { disable_hooks: true, ..RenderingOptions::default() },
            execution: ExecutionOptions {
                create_namespace: true,
                wait: false,
                wait_for_jobs: false,
                atomic: false,
                take_ownership: false,
                force: false,
                cleanup_on_fail: false,
                max_history: 0,
                timeout: Duration::from_secs(60),
                keep_history: false,
                removal_description: String::new(),
            },
        };
        let applied = self.tool.apply(order, &CancellationToken::new(), |_| {}).await;
        applied.unwrap_or_else(|failed| panic!("{name}: {}: {}", failed.failure.category, failed.failure));
    }

    fn helm(&self, namespace: &str, arguments: &[&str]) -> String {
        let output = Command::new(&self.helm)
            .args(arguments)
            .args(["--namespace", namespace, "--kubeconfig"])
            .arg(self.plane.kubeconfig_path())
            .env_clear()
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The documents of a manifest, in an order of their own: hooks are printed apart.
fn documents(text: &str) -> Vec<String> {
    let text = format!("\n{text}");
    let mut documents: Vec<_> = text
        .split("\n---\n")
        .map(|document| document.trim().to_owned())
        .filter(|document| !document.is_empty())
        .collect();
    documents.sort();
    documents
}

/// The folder of a Go module, from its cache or the module proxy.
fn module_folder(module: &str, version: &str) -> PathBuf {
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .current_dir(std::env::temp_dir())
        .output()
        .expect("go runs");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("go answers in JSON");
    PathBuf::from(answer["Dir"].as_str().unwrap_or_else(|| panic!("{module}@{version}: {answer}")))
}

#[tokio::test]
async fn real_charts_render_as_with_helm() {
    let bench = Bench::new().await;
    for RealChart { module, version, folder, values } in REAL_CHARTS {
        let chart = module_folder(module, version).join(folder);
        let name = folder.rsplit('/').next().unwrap();
        bench.compare(name, &chart, values).await;
    }
}

#[tokio::test]
async fn awkward_values_render_as_with_helm() {
    let bench = Bench::new().await;
    let chart = bench.folder.join("awkward");
    for (name, content) in AWKWARD_CHART {
        let path = chart.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    bench.compare("awkward", &chart, AWKWARD_VALUES).await;
}
