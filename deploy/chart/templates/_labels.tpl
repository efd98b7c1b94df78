{{- define "chandler.selector" -}}
app.kubernetes.io/name: chandler
{{- end }}

{{- /* Pods of the hub have a name of their own, so that no selector of the manager matches them. */}}
{{- define "chandler.hubSelector" -}}
app.kubernetes.io/name: chandler-hub
{{- end }}

{{- define "chandler.labels" -}}
{{ include "chandler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Renders an object of a file with the common labels. */}}
{{- define "chandler.labeled" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $labels := include "chandler.labels" $root | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) $labels) }}
{{- toYaml $object }}
{{- end }}
