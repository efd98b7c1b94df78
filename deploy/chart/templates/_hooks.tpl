{{/* The NetworkPolicy peers that may call the hooks. If an earlier chart has opened the hooks to all Pods, they stay open, because
     Cluster API may run in any namespace. */}}
{{- define "chandler.hooksFrom" -}}
{{- $anywhere := list (dict "namespaceSelector" (dict)) }}
{{- $clusterAPI := list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" "capi-system"))) }}
{{- $from := .Values.networkPolicy.hooksFrom | default $clusterAPI }}
{{- if not (or .Values.networkPolicy.hooksFrom (.Values.security).strict) }}
{{- $earlier := lookup "networking.k8s.io/v1" "NetworkPolicy" .Release.Namespace "chandler-manager" }}
{{- range ($earlier.spec).ingress }}
{{- if and (eq (toString (first (.ports | default (list dict))).port) "hooks") (eq (toJson .from) (toJson $anywhere)) }}
{{- $from = $anywhere }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $from }}
{{- end }}
