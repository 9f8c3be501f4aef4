{{/* Labels that never change: what selectors use. */}}
{{- define "plugin-host.selectorLabels" -}}
app.kubernetes.io/name: plugin-host
app.kubernetes.io/component: host
{{- end -}}

{{/* Labels of every object. */}}
{{- define "plugin-host.labels" -}}
app.kubernetes.io/name: plugin-host
app.kubernetes.io/part-of: plugin-host
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "plugin-host.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "plugin-host.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
plugin-host-tls-issued
{{- else -}}
{{ .Values.tls.existingSecret | default "plugin-host-tls" }}
{{- end -}}
{{- end -}}

{{/* What plugins call it, first the name that its certificate is for. */}}
{{- define "plugin-host.dnsNames" -}}
{{- $host := printf "plugin-host.%s.svc" .Release.Namespace -}}
{{- concat (list $host (printf "%s.cluster.local" $host) "plugin-host") .Values.tls.extraDNSNames | toYaml -}}
{{- end -}}

{{- define "plugin-host.cursorKeySecret" -}}
{{ .Values.cursorKeys.existingSecret | default "plugin-host-cursor-keys" }}
{{- end -}}

{{/* The Secret with the keys of plugins' secrets, empty for none: a key that is made at a
rendering which can't see the last one would end every secret that is there. */}}
{{- define "plugin-host.secretKeySecret" -}}
{{- if .Values.secretKeys.existingSecret -}}
{{ .Values.secretKeys.existingSecret }}
{{- else if lookup "v1" "Namespace" "" "kube-system" -}}
plugin-host-secret-keys
{{- end -}}
{{- end -}}

{{- define "plugin-host.claim" -}}
{{ .Values.store.sqlite.existingClaim | default "plugin-host-data" }}
{{- end -}}
