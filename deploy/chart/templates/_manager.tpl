{{- define "chandler.image" -}}
{{- $tag := .Values.image.tag | default (printf "v%s" .Chart.AppVersion | replace "+" "_") }}
{{- $image := printf "%s:%s" .Values.image.repository $tag }}
{{- with .Values.image.digest }}{{ $image = printf "%s@%s" $image . }}{{ end }}
{{- $image | quote }}
{{- end }}

{{- define "chandler.agentImage" -}}
{{- $tag := .Values.tunnel.agentImage.tag | default (printf "v%s" .Chart.AppVersion | replace "+" "_") }}
{{- $image := printf "%s:%s" .Values.tunnel.agentImage.repository $tag }}
{{- with .Values.tunnel.agentImage.digest }}{{ $image = printf "%s@%s" $image . }}{{ end }}
{{- $image }}
{{- end }}

{{- define "chandler.storeSize" -}}
{{ printf "%dMi" (div (mul 3 (int .Values.store.limit)) 2) }}
{{- end }}

{{- define "chandler.arguments" -}}
- manager
- --metrics-address=0.0.0.0:8080
- --store-limit={{ int .Values.store.limit }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
- --concurrency={{ .Values.concurrency }}
- --concurrency-per-cluster={{ .Values.concurrencyPerCluster }}
- --platform-namespace={{ .Values.platform.namespace | default "$(POD_NAMESPACE)" }}
{{- with .Values.platform.version }}
- --platform-version={{ . }}
{{- end }}
{{- with .Values.platform.versionFrom }}
- --platform-version-from={{ . }}
{{- end }}
{{- with .Values.watchFilter }}
- --watch-filter={{ . }}
{{- end }}
{{- with .Values.watchNamespace }}
- --namespace={{ . }}
{{- end }}
{{- if not .Values.health.enabled }}
- --health=false
{{- end }}
{{- if (.Values.security).strict }}
- --refuse-private-addresses
- --refuse-unverified-tls
- --require-login-hosts
{{- end }}
{{- with (.Values.security).defaultWorkloadServiceAccount }}
- --default-workload-service-account={{ . }}
{{- end }}
{{- if (.Values.security).ignoreTenancies }}
- --ignore-tenancies
{{- end }}
{{- range (.Values.security).allowAddresses }}
- --allow-address={{ . }}
{{- end }}
{{- range .Values.sources.allowAddresses }}
- --allow-source-address={{ . }}
{{- end }}
{{- range .Values.sources.refuseAddresses }}
- --refuse-source-address={{ . }}
{{- end }}
{{- /* With --reuse-values, a value that an earlier chart did not have is missing. */}}
{{- with .Values.toolProcesses }}
- --tool-processes={{ int . }}
{{- end }}
{{- with (.Values.clusterDeletion).timeoutSeconds }}
- --cluster-deletion-timeout-seconds={{ int . }}
{{- end }}
{{- with (.Values.quotas).storeMiBPerNamespace }}
- --store-quota-per-namespace={{ int . }}
{{- end }}
{{- with (.Values.quotas).indexMiBPerNamespace }}
- --index-quota-per-namespace={{ int . }}
{{- end }}
{{- with (.Values.quotas).operationsPerNamespace }}
- --concurrency-per-namespace={{ int . }}
{{- end }}
{{- /* 0 is a value of its own. */}}
{{- if hasKey (.Values.quotas | default dict) "templateSecondsPerMinute" }}
- --template-seconds-per-minute={{ int .Values.quotas.templateSecondsPerMinute }}
{{- end }}
{{- with (.Values.quotas).maxTimeoutSeconds }}
- --max-timeout-seconds={{ int . }}
{{- end }}
{{- if .Values.hooks.enabled }}
- --hooks-endpoint={{ .Values.hooks.endpoint | default "pod" }}
- --hooks-failure-policy={{ .Values.hooks.failurePolicy }}
{{- else }}
- --hooks-endpoint=none
{{- end }}
{{- if .Values.receiver.enabled }}
- --receiver-address=0.0.0.0:9292
- --receiver-service=chandler-receiver
{{- end }}
{{- if .Values.fleet.enabled }}
- --fleet
{{- end }}
{{- if .Values.tunnel.enabled }}
{{- range .Values.tunnel.hubAddresses }}
- --tunnel-hub-address={{ . }}
{{- end }}
- --tunnel-agent-image={{ include "chandler.agentImage" . }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "chandler.hubArguments" -}}
- hub
- --keys-dir=/etc/chandler-tunnel
- --peers=chandler-hub-peers.{{ .Release.Namespace }}.svc:8134
- --metrics-address=0.0.0.0:8081
- --buffer-limit={{ int .Values.tunnel.bufferLimit }}
- --drain-seconds={{ int .Values.tunnel.drainSeconds }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
{{- end }}
