//! A chart and values for edge cases in which renderings are known to differ.

/// A chart whose templates print values in many ways, with subcharts and globals.
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
