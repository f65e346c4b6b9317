"""A small configuration and one with every kind of setting."""

SMALLEST = """\
sources: [{prometheus: http://prometheus:9090}]
pools:
  - name: rag-8b
    match: {job: vllm-rag}
    gpus_per_replica: 1
    serving: {max_num_seqs: 256, max_num_batched_tokens: 512}
    slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}
receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]
"""
FULL = """\
sources:
  - prometheus: https://prometheus:9090/prefix
    basic_auth: {username: watch, password_file: password}
  - {prometheus: "http://p2:9090", bearer_token_file: /etc/token}
  - {pages: ["http://a:8000/metrics", "http://b:8000/metrics"], labels: {pool: x}}
interval: 10s
pools:
  - name: chat
    match: {model_name: llama, namespace: prod}
    gpus_per_replica: 2
    serving:
      max_num_seqs: 256
      max_num_batched_tokens: 8192
      max_num_active_seqs: 300
      model: Qwen/Qwen2.5-32B
      gpu: NVIDIA H100 80GB HBM3
      startup_log: logs/start.log
      arguments: [vllm, serve, --max-num-seqs, "256"]
    slo: {tpot_seconds: 0.05}
    tuned_for: {prompt_tokens: 512, generation_tokens: 200}
pool_by: [cluster]
receivers:
  - {name: log, stdout: }
  - {name: hook, webhook: {url_file: hook.url, secret_file: hook.key}, severities: [ticket]}
  - {name: inline, webhook: {url: "https://host/CANARY"}}
report: {receivers: [log]}
rules: [rules, "more/*.yaml", /abs/r.yaml]
database: state/dw.db
listen: "[::1]:9100"
external_url: https://driftwatch.example/
"""
