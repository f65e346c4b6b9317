{{- define "driftwatch.name" -}}
{{- $name := contains "driftwatch" .Release.Name | ternary .Release.Name (printf "%s-driftwatch" .Release.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "driftwatch.selector" -}}
app.kubernetes.io/name: driftwatch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "driftwatch.labels" -}}
{{ include "driftwatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "driftwatch.database" -}}
{{- eq .Values.mode "fleet" | ternary .Values.database.url "/var/lib/driftwatch/driftwatch.db" -}}
{{- end }}

{{/* driftwatch.yaml: the reader's, and what the chart decides */}}
{{- define "driftwatch.config" -}}
{{- $config := .Values.config -}}
{{- if kindIs "string" $config -}}
{{- $config = fromYaml $config -}}
{{- with $config.Error }}{{ fail (printf "config: %s" .) }}{{ end -}}
{{- end -}}
{{- range list "database" "database_password_file" "listen" -}}
{{- if hasKey $config . }}{{ fail (printf "config.%s: the chart writes it; leave it out" .) }}{{ end -}}
{{- end -}}
{{- $own := dict "database" (include "driftwatch.database" .) "listen" "0.0.0.0:9095" -}}
{{- if eq .Values.mode "fleet" -}}
{{- $_ := set $own "database_password_file" (printf "/etc/driftwatch-secrets/%s" .Values.database.passwordKey) -}}
{{- end -}}
{{- if and .Values.rules (not (hasKey $config "rules")) -}}
{{- $_ := set $own "rules" (list "/opt/driftwatch/rules" "/etc/driftwatch-rules") -}}
{{- end -}}
{{- toYaml (merge $own $config) -}}
{{- end }}

{{/* labels and annotations of a pod: (dict "root" . "component" "run") */}}
{{- define "driftwatch.podMetadata" -}}
annotations:
  # a changed configuration, or changed rules, start the pods anew
  checksum/config: {{ printf "%s%s" (include "driftwatch.config" .root) (toYaml .root.Values.rules) | sha256sum }}
labels:
  {{- include "driftwatch.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "driftwatch.pod" -}}
serviceAccountName: {{ include "driftwatch.name" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.pod }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* of every container, whatever it runs */}}
{{- define "driftwatch.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  # before what the image names
  - name: DRIFTWATCH_DATABASE
    value: {{ include "driftwatch.database" . | quote }}
  - name: DRIFTWATCH_LISTEN
    value: 0.0.0.0:9095
securityContext:
  allowPrivilegeEscalation: false
  privileged: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: config
    mountPath: /etc/driftwatch
    readOnly: true
  - name: secrets
    mountPath: /etc/driftwatch-secrets
    readOnly: true
  {{- if .Values.rules }}
  - name: rules
    mountPath: /etc/driftwatch-rules
    readOnly: true
  {{- end }}
  - name: data
    mountPath: /var/lib/driftwatch
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "driftwatch.volumes" -}}
- name: config
  configMap:
    name: {{ include "driftwatch.name" . }}-config
- name: secrets
  secret:
    secretName: {{ .Values.secretName }}
    defaultMode: 288 # 0440
{{- if .Values.rules }}
- name: rules
  configMap:
    name: {{ include "driftwatch.name" . }}-rules
{{- end }}
- name: data
  {{- if eq .Values.mode "single" }}
  persistentVolumeClaim:
    claimName: {{ include "driftwatch.name" . }}
  {{- else }}
  emptyDir:
    sizeLimit: 8Gi
  {{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end }}

{{- define "driftwatch.webContainer" -}}
- name: web
  args: [web, -c, /etc/driftwatch/driftwatch.yaml, --listen, "0.0.0.0:9096"]
  {{- include "driftwatch.container" . | nindent 2 }}
  ports:
    - name: web
      containerPort: 9096
  # it answers to names that it knows: the kubelet would send the pod's address
  livenessProbe:
    httpGet: &page
      path: /-/healthy
      port: web
      httpHeaders:
        - name: Host
          value: localhost
    initialDelaySeconds: 10
    periodSeconds: 20
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    httpGet: *page
    periodSeconds: 15
    timeoutSeconds: 5
  resources:
    {{- toYaml .Values.web.resources | nindent 4 }}
{{- end }}
