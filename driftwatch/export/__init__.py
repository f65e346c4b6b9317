"""Rules as alerts of Prometheus, Alertmanager and Grafana over the target metrics. Pure."""
