//! The charts and the values that try them.

/// A chart that comes with a Go module.
pub struct RealChart {
    pub module: &'static str,
    pub version: &'static str,
    pub folder: &'static str,
    pub values: &'static str,
}

/// Versions are those that the module proxy has and this Go can read. Certificates and other random data are switched
/// off, because no two renderings of them are alike.
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
pub const AWKWARD_CHART: &[(&str, &str)] = &[
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

pub const AWKWARD_VALUES: &str = "
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
