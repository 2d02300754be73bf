{{- define "mustcall.name" -}}
{{- if contains "mustcall" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-mustcall" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "mustcall.selector" -}}
app.kubernetes.io/name: mustcall
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mustcall.labels" -}}
{{ include "mustcall.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "mustcall.secret" -}}
{{- .Values.existingSecret | default (include "mustcall.name" .) -}}
{{- end -}}
