"""The same stretch as a recording and through a real Prometheus: the findings must be the same.

Samples are written as OpenMetrics with each scrape's own time, made into TSDB blocks by promtool
and served by a real Prometheus, which ``driftwatch replay --prometheus`` asks.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.testing.exposition_server import read_pages
from driftwatch.testing.prometheus_server import PrometheusServer, backfill
from truth_judge import fleets
from truth_judge.commands import Case, iso, pages
from truth_judge.disguise import differences
from truth_judge.facts import seconds_of
from truth_judge.sets import Draw


def blocks_of(recording: Path, instance: str, into: Path) -> None:
    """TSDB blocks of a recording of text pages."""
    backfill(read_pages(recording), {"job": "vllm", "instance": instance}, into)


def same_findings(case: Case, *, step_seconds: float, blocks: Path | None = None) -> dict[str, Any]:
    """Replay a case both ways.

    Args:
        case: its recording is read the first way.
        step_seconds: its scrape interval.
        blocks: the same scrapes as TSDB blocks; None = made here from its text pages.
    """
    with tempfile.TemporaryDirectory(prefix="driftwatch-truth-") as folder:
        made = blocks
        if made is None:
            made = Path(folder) / "blocks"
            blocks_of(case.recording, case.instances[0], made)
        ours, ours_seconds = pages(*case.words(), str(case.recording))
        with PrometheusServer(blocks=made) as server:
            theirs, theirs_seconds = pages(
                *case.words(),
                "--prometheus",
                server.url,
                "--step",
                str(step_seconds),
                "--from",
                # half a step off the scrapes: a grid that meets them within their jitter loses some
                iso(case.start_seconds - step_seconds / 2),
                "--to",
                iso(case.end_seconds + step_seconds),
            )
    found = differences([who_what_when(p) for p in ours], [who_what_when(p) for p in theirs])
    seconds = {"recording_seconds": ours_seconds, "prometheus_seconds": theirs_seconds}
    return {"case": case.name, "findings": len(ours)} | seconds | found


def scenario_the_same(draw: Draw, folder: Path) -> dict[str, Any]:
    """A scenario as a compact recording and as OpenMetrics, made from the same seed."""
    case = fleets.made(draw, folder)
    (text,) = fleets.written(draw, folder, "openmetrics").glob("*.om")
    blocks = folder / "blocks"
    words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    subprocess.run(words, check=True, capture_output=True)
    step = scenario_named(fleets.scenario_of(draw, folder)).scrape.interval
    return same_findings(case, step_seconds=step, blocks=blocks)


def who_what_when(page: Mapping[str, Any]) -> str:
    """Who is told what and when; a Prometheus keeps times in ms and values on a grid of its own."""
    change = page["recommendation"] or {}
    words = (
        page["event"],
        page["severity"],
        page["rule"],
        page["target"].get("instance", page["target"].get("pool")),
        iso(seconds_of(page["times"]["evaluated_at"])),
        (page["diagnosis"] or {}).get("leaf"),
        change.get("knob"),
        change.get("from"),
        change.get("to"),
    )
    return " ".join(str(word) for word in words)
