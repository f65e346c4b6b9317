"""A rule of a user's with a leaf of its own: its page, its report line and its runbook are data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from made_incidents import incident_of, with_values

from driftwatch.diagnose.tree import walk
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.notify.headline import lines
from driftwatch.pipeline.build_page import build_page
from driftwatch.report.incidents import family_of
from driftwatch.rulebook.book import load_rulebook
from tests.diagnose.walk_cases import frame

RULE = """\
groups:
  - name: adapters
    rules:
      - alert: AdaptersThrash
        when: waiting_deferred_share_10m_ratio >= 0.3
        severity: page
        tree: adapters
        page:
          says: ["{waiting_deferred_requests} requests wait for an adapter, {present}"]
          cause: ["{meaning}"]
          also: ["KV cache {kv_cache_usage_ratio}"]
          family: traffic
        annotations: {runbook_url: https://wiki.example.net/adapters}
"""
TREE = """\
tree: adapters
start: many_deferred
nodes:
  many_deferred:
    question: Do most requests wait for an adapter?
    when: waiting_deferred_share_10m_ratio >= 0.3
    yes: adapter_slots
    no: healthy
leaves:
  adapter_slots:
    kind: none
    meaning: the server swaps adapters
    advice: Raise max_loras or route by adapter
  healthy: {kind: healthy, meaning: no adapter is waited for}
"""
AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
ROW = {
    "waiting_deferred_share_10m_ratio": 0.5,
    "waiting_deferred_requests": 12.0,
    "running_requests": 8.0,
    "waiting_requests": 12.0,
    "kv_cache_usage_ratio": 0.4,
}


def test_two_files_make_a_page_a_report_line_and_a_runbook(tmp_path: Path) -> None:
    (tmp_path / "trees").mkdir()
    (tmp_path / "adapters.yaml").write_text(RULE)
    (tmp_path / "trees" / "adapters.yaml").write_text(TREE)
    (rule,) = load_rulebook([tmp_path]).rules
    incident = incident_of(
        "i", rule=rule.id, alert=rule.alert, severity=rule.severity, at=AT, started_at=AT
    )
    tree = load_rulebook([tmp_path]).trees["adapters"]
    (diagnosis,) = walk(tree, frame(ROW))
    key = TargetKey("host:8000", "0")
    target = Target(key, {}, "p")
    finding = Finding(rule.id, target, AT, ROW, diagnosis=diagnosis, concerned=(key,))
    page = build_page(finding, incident, "firing", AT, annotations=rule.annotations, form=rule.page)
    assert page.summary == (
        "FIRING host:8000: 12 requests wait for an adapter, 20 requests running or waiting. "
        "Raise max_loras or route by adapter"
    )
    body = {line.label: line.text for line in lines(page)}
    assert body["Cause"] == "the server swaps adapters"
    assert body["Also"] == "KV cache 40 %"
    assert page.links.runbook == "https://wiki.example.net/adapters"
    paged = with_values(incident, page=page, resolved_at=AT + timedelta(hours=1))
    assert family_of(paged) == "traffic"
