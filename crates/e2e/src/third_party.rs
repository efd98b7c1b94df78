//! Widely used charts, with values that cover edge cases. They are read from Go modules, so that no copy of them is
//! checked in.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::go_module;

/// A chart in a Go module.
#[derive(Clone, Copy)]
pub struct RealChart {
    pub module: &'static str,
    pub version: &'static str,
    pub folder: &'static str,
    pub values: &'static str,
}

impl RealChart {
    pub fn name(&self) -> &'static str {
        self.folder.rsplit('/').next().unwrap()
    }

    /// Returns the folder of the chart, downloading its Go module if needed.
    pub async fn path(&self) -> PathBuf {
        let module = format!("{}@{}", self.module, self.version);
        go_module::folder(&std::env::temp_dir(), &module).await.join(self.folder)
    }
}

/// Only versions that the Go module proxy serves can be used. Generated certificates and other random data are disabled,
/// because they render differently each time.
pub const REAL_CHARTS: &[RealChart] = &[
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
# The APIService would be registered, but no server would respond.
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
# Three megabytes of objects, which are half of what the Secret of a release may hold.
crds: {install: on}
grafana: {enabled: true, annotations: {octal: '0777'}}
admissionController: {replicas: 3, priorityClassName: null}
features: {logging: {verbosity: 0b11}}
webhooksCleanup: {enabled: false}
",
    },
];

/// Returns the chart of Kyverno and a later version of it, which has more CRDs. Later ones have subcharts that are not in the module.
pub fn kyverno() -> [RealChart; 2] {
    let first = *REAL_CHARTS.iter().find(|chart| chart.name() == "kyverno").unwrap();
    [first, RealChart { version: "v1.14.4", ..first }]
}

/// The module of cert-manager, at a version that the programs of the sandbox use too.
const CERT_MANAGER: &str = "github.com/cert-manager/cert-manager@v1.19.3";

/// The values of cert-manager for a cluster without real Pods: nothing waits for its webhook.
pub const CERT_MANAGER_VALUES: &str = r#"{
    "crds": {"enabled": true}, "startupapicheck": {"enabled": false},
    "webhook": {
        "validatingWebhookConfiguration": {"namespaceSelector": {"matchLabels": {"e2e.example/validate": "true"}}},
        "mutatingWebhookConfiguration": {"namespaceSelector": {"matchLabels": {"e2e.example/validate": "true"}}}
    }
}"#;

/// Copies the chart of cert-manager, an operator with its CRDs, to a folder. The module has only a template of its `Chart.yaml`.
pub async fn cert_manager(folder: &Path) -> PathBuf {
    let module = go_module::folder(&std::env::temp_dir(), CERT_MANAGER).await;
    let chart = module.join("deploy/charts/cert-manager");
    copy(&chart, folder).unwrap();
    let metadata = fs::read_to_string(chart.join("Chart.template.yaml")).unwrap();
    fs::write(folder.join("Chart.yaml"), metadata.replace("{{IS_PRERELEASE}}", "false")).unwrap();
    folder.to_owned()
}

/// Copies a folder with everything below it.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::write(&target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
