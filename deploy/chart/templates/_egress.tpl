{{- /* The rules for outgoing connections, from networkPolicy: everything but the refused ranges, and all DNS servers. */}}
{{- define "chandler.egress" -}}
{{- $v4 := list }}
{{- $v6 := list }}
{{- range .refuse }}
{{- if contains ":" . }}{{ $v6 = append $v6 . }}{{ else }}{{ $v4 = append $v4 . }}{{ end }}
{{- end }}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        {{- with $v4 }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
    - ipBlock:
        cidr: ::/0
        {{- with $v6 }}
        except:
          {{- toYaml . | nindent 10 }}
        {{- end }}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}
