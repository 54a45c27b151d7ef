{{- /* Labels of a component's objects, which also select its pods. */}}
{{- define "airlock.labels" -}}
{{- $top := index . 0 -}}
{ app.kubernetes.io/name: airlock, app.kubernetes.io/instance: {{ $top.Release.Name }}, app.kubernetes.io/component: {{ index . 1 }}
{{- with slice . 2 }}, airlock/group: {{ first . }}{{ end }} }
{{- end }}

{{- define "airlock.pod" -}}
automountServiceAccountToken: false
# The addresses of Services would be configuration keys that nobody knows.
enableServiceLinks: false
imagePullSecrets: {{ toJson .Values.pullSecrets }}
{{- end }}

{{- define "airlock.program" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
securityContext:
  { runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, readOnlyRootFilesystem: true,
    allowPrivilegeEscalation: false, capabilities: { drop: [ALL] }, seccompProfile: { type: RuntimeDefault } }
{{- end }}

{{- define "airlock.files" -}}
airlock.toml: {{ toToml .Values.config | toJson }}
engine.sh: {{ .Files.Get "engine.sh" | toJson }}
{{- end }}
