{{- define "chandler.selector" -}}
app.kubernetes.io/name: chandler
{{- end }}

{{- define "chandler.labels" -}}
{{ include "chandler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* An object of a file, with the labels that all have. */}}
{{- define "chandler.labelled" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $labels := include "chandler.labels" $root | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) $labels) }}
{{- toYaml $object }}
{{- end }}
