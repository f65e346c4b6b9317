"""The other shipped rules, on real pages that are made to go on."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e_cases import pages
from fakes.prometheus_api import PrometheusApi, recorded
from replayed_rows import replayed_rows

START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC).timestamp()
_COUNTER = re.compile(r"^(vllm:\S+?(?:_total|_sum|_count|_bucket)\{[^}]*\}) (\S+)$", re.M)


def going_on(page: str, seconds: float) -> str:
    """The page with every counter grown in proportion to the time."""
    return _COUNTER.sub(lambda m: f"{m[1]} {float(m[2]) * (1 + seconds / 100)}", page)


def recording(path: Path, body_at: Callable[[float], str | None], minutes: float) -> Path:
    """A scrape every 10 s; None = the scrape failed."""
    with path.open("w") as out:
        for step in range(int(minutes * 6)):
            body = body_at(step * 10.0)
            line: dict[str, Any] = {"t": START + step * 10.0, "status": 200, "body": body}
            if body is None:
                line = {"t": START + step * 10.0, "status": "exc", "body": ""}
            out.write(json.dumps(line) + "\n")
    return path


@pytest.fixture
def raw(shared_data: Path) -> Path:
    return shared_data / "vllm-0.32"


def test_deferred_admission_is_a_ticket(run: Any, raw: Path, tmp_path: Path) -> None:
    page = (raw / "metrics_lora_during.txt").read_text()
    assert 'reason="deferred"} 5.0' in page
    # what waits for capacity in the same page is another rule's matter
    page = re.sub(r'(reason="capacity"\}) \S+', r"\1 0.0", page)
    told = pages(
        run("replay", recording(tmp_path / "r.jsonl", lambda s: going_on(page, s), 15), "--json")
    )
    assert [(p["alert"], p["severity"], p["event"]) for p in told] == [
        ("DeferredAdmission", "ticket", "firing")
    ]
    assert told[0]["diagnosis"]["leaf"] == "deferred_admission"
    assert told[0]["advice"]["action"] == "none"
    assert "5 requests deferred" in told[0]["summary"]


@pytest.mark.parametrize("more_wait", [True, False])
def test_a_wedged_engine_is_stuck_after_two_minutes(
    run: Any, raw: Path, tmp_path: Path, *, more_wait: bool
) -> None:
    """It pages where a request came since its last work; else its gauges may be stale."""
    page = (raw / "metrics_lora_during.txt").read_text()
    page = re.sub(r'(reason="deferred"\}) \S+', r"\1 0.0", page)
    running = re.search(r"vllm:num_requests_running\{[^}]*\} (\S+)", page)
    assert running is not None
    assert float(running[1]) > 0

    def body(seconds: float) -> str:
        shown = going_on(page, min(seconds, 300.0))  # no counter moves from then on
        came = f"{7 if more_wait and seconds > 330 else 5}.0"
        return re.sub(r"(vllm:num_requests_waiting\{[^}]*\}) \S+", rf"\1 {came}", shown)

    told = pages(run("replay", recording(tmp_path / "r.jsonl", body, 12), "--json"))
    stuck = [p for p in told if p["alert"] in ("EngineStuck", "EngineSilent")]
    severity = "page" if more_wait else "ticket"
    assert [(p["severity"], p["event"]) for p in stuck] == [(severity, "firing")]
    fired = datetime.fromisoformat(stuck[0]["times"]["firing_at"]).timestamp() - START - 300
    assert 120 <= fired <= 190
    assert stuck[0]["diagnosis"]["leaf"] == ("engine_stuck" if more_wait else "engine_silent")
    assert stuck[0]["advice"]["action"] == "none"
    assert not [p for p in told if "Set max_num_seqs" in p["summary"]]


def test_lost_coverage_is_a_ticket_and_never_zero(run: Any, raw: Path, tmp_path: Path) -> None:
    page = (raw / "metrics_during_load.txt").read_text()
    path = recording(tmp_path / "r.jsonl", lambda s: going_on(page, s) if s < 600 else None, 40)
    with replayed_rows() as rows:
        told = pages(run("replay", path, "--json"))
    assert [(p["alert"], p["severity"], p["event"]) for p in told] == [
        ("CoverageLost", "ticket", "firing")
    ]
    fired = datetime.fromisoformat(told[0]["times"]["firing_at"]).timestamp() - START - 600
    assert 900 <= fired <= 970
    import polars as pl

    lost = rows.table.filter(
        pl.col("start") >= datetime.fromtimestamp(START, UTC) + timedelta(minutes=11)
    )
    assert lost["generation_tokens_per_second"].null_count() == len(lost)


def test_stats_disabled_is_said_not_idle(run: Any, raw: Path, tmp_path: Path) -> None:
    page = (raw / "metrics_disable_log_stats.txt").read_text()
    path = recording(tmp_path / "r.jsonl", lambda s: page, 5)
    result = run("doctor", "--recording", path)
    assert result.exit_code == 1
    assert "stats disabled" in result.stdout
    assert "--disable-log-stats" in result.stdout
    assert "NOT READY" in result.stdout
    told = run("replay", path, "--json")
    assert told.stdout == ""


@pytest.fixture
def restarts(raw: Path) -> Iterator[PrometheusApi]:
    import gzip

    answers = json.loads(
        gzip.decompress((raw / "restart/query_range_restart.json.gz").read_bytes())
    )
    with PrometheusApi(recorded(answers["queries"], 5.0)) as api:
        yield api


def test_two_restarts_behind_prometheus(
    run: Any, restarts: PrometheusApi, raw: Path, tmp_path: Path
) -> None:
    """Two counter drops: no negative rate, nothing stuck, nothing lost."""
    import gzip

    answers = json.loads(
        gzip.decompress((raw / "restart/query_range_restart.json.gz").read_bytes())
    )
    with replayed_rows() as kept:
        result = run(
            *("replay", "--prometheus", restarts.address, "--json"),
            *("--from", answers["start"], "--to", answers["end"]),
        )
    assert result.exit_code in (0, 1), result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [p["alert"] for p in told if p["alert"] == "EngineStuck"] == []
    rows = kept.table
    assert rows["restarted"].sum() == 2
    assert rows["generation_tokens_per_second"].drop_nulls().min() >= 0
    counted = (rows["generation_tokens_per_second"] * rows["duration_seconds"]).sum()
    # scrapes after the last whole minute are not in the table
    last = rows["end"].max().timestamp()
    tokens = _series(answers, "vllm:generation_tokens_total")
    values = [float(v) for at, v in tokens if at < last]
    truth = sum(
        now - before if now >= before else now for before, now in itertools.pairwise(values)
    )
    assert counted == pytest.approx(truth, rel=1e-9)


def _series(answers: dict[str, Any], name: str) -> list[list[Any]]:
    found = answers["queries"][name]
    result = found.get("response", found)["data"]["result"]
    values: list[list[Any]] = sorted(
        (v for one in result for v in one["values"]), key=lambda v: v[0]
    )
    return values


def test_a_stale_configured_cap_is_no_silence(run: Any, raw: Path, tmp_path: Path) -> None:
    """Requests wait while 3 of a configured 64 run: somebody is told, and asked about the 64."""
    page = (raw / "metrics_lora_during.txt").read_text()
    page = re.sub(r'(reason="deferred"\}) \S+', r"\1 0.0", page)
    page = re.sub(r'(reason="capacity"\}) \S+', r"\1 8.0", page)
    path = recording(tmp_path / "r.jsonl", lambda s: going_on(page, s), 15)
    result = run("replay", path, "--json", "--max-num-seqs", 64, "--max-num-batched-tokens", 8192)
    told = pages(result)
    assert [p["alert"] for p in told] == ["BatchLimitBinding"]
    assert told[0]["diagnosis"]["leaf"] == "undetermined"
    assert told[0]["advice"]["action"] == "none"
    assert "no configured limit is full" in told[0]["summary"]
    assert "does the server run with these?" in told[0]["evidence"]["binding_limit"]["reason"]
