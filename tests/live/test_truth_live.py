"""The same stretch through a real Prometheus gives the same findings as its recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from fakes.exposition_server import read_pages
from fakes.prometheus_server import PrometheusServer, backfill
from truth_judge.commands import Case, iso, pages
from truth_judge.facts import seconds_of
from truth_judge.recordings import recorded_case

pytestmark = pytest.mark.usefixtures("real_prometheus")


def who_what_when(page: Mapping[str, Any]) -> tuple[object, ...]:
    """Without values: a Prometheus keeps times in ms and values on a grid of its own."""
    change = page["advice"] or {}
    return (
        *(page[name] for name in ("event", "severity", "rule")),
        page["labels"].get("instance", page["labels"].get("pool")),
        iso(seconds_of(page["times"]["evaluated_at"])),
        (page["diagnosis"] or {}).get("leaf"),
        *(change.get(name) for name in ("knob", "from", "to")),
    )


def both_ways(case: Case, blocks: Path, step: float) -> tuple[list[object], list[object]]:
    ours, _ = pages(*case.words(), str(case.recording))
    # half a step off the scrapes: a grid that meets them within their jitter loses some
    span = ("--from", iso(case.start_seconds - step / 2), "--to", iso(case.end_seconds + step))
    with PrometheusServer(blocks=blocks) as server:
        where = ("--prometheus", server.url)
        theirs, _ = pages(*case.words(), *where, *span)
    return [who_what_when(p) for p in ours], [who_what_when(p) for p in theirs]


def test_a_real_servers_page_is_the_same(shared_data: Path, tmp_path: Path) -> None:
    case = recorded_case(shared_data / "vllm-0.32" / "run_cap")
    labels = {"job": "vllm", "instance": case.instances[0]}
    backfill(read_pages(case.recording), labels, tmp_path / "blocks")
    ours, theirs = both_ways(case, tmp_path / "blocks", 5.0)
    assert len(ours) == 2
    assert theirs == ours
