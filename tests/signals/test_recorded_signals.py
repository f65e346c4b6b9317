"""Every signal of the truth beside the real recordings, within 5 % or its last printed digit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import KEY, evidence, grid, recording, rows_of, serving, summary

from driftwatch.collect.registry import BUCKETED
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.signals.histograms import quantile

# truth → evidence column (or what its histograms give) and the factor between their units
SIGNALS = {
    "running_mean": ("running_requests", 1),
    "waiting_mean": ("waiting_requests", 1),
    "kv_mean": ("kv_cache_usage_ratio", 1),
    "gen_tok_s": ("generation_tokens_per_second", 1),
    "req_s": ("requests_per_second", 1),
    "decode_reqs_per_step": ("decode_requests_per_forward_pass", 1),
    "prompt_tok_s": ("prompt_rate", 1),
    "steps_s": ("steps_rate", 1),
    "queue_mean_ms": ("queue_mean", 1000),
    "ttft_mean_ms": ("ttft_mean", 1000),
    "out_reqs_per_step": ("requests_per_forward_pass", 1),
    "tok_per_step": ("tokens_per_forward_pass", 1),
    "mean_concurrency_little": ("effective_batch_size", 1),
    "prompt_hist_mean": ("prompt_tokens_mean", 1),
    "prompt_p50": ("prompt_tokens_p50", 1),
    "prompt_p95": ("prompt_tokens_p95", 1),
    "gen_hist_mean": ("generation_tokens_mean", 1),
    "gen_p50": ("generation_tokens_p50", 1),
    "gen_p95": ("generation_tokens_p95", 1),
    "queue_p95_s": ("queue_seconds_p95", 1),
    "ttft_p95_ms": ("ttft_seconds_p95", 1000),
    "itl_mean_ms": ("itl_seconds_mean", 1000),
    "itl_p95_ms": ("itl_seconds_p95", 1000),
    "prefix_hit": ("prefix_cache_hit_ratio", 1),
    "window_s": ("duration_seconds", 1),
    "scrapes": ("scrapes", 1),
}
TRIM_SECONDS = 15.0


def _phases_of_run_main(folder: Path) -> dict[str, dict[str, Any]]:
    listed = json.loads((folder / "phases.json").read_text())["phases"]
    return {phase["name"]: phase for phase in listed}


def _stretches(shared_data: Path, run: str) -> list[tuple[str, float, float, dict[str, Any]]]:
    """(name, start, end, truth) of every phase and load segment of a run."""
    folder = shared_data / "vllm-0.32" / run
    found = []
    for truth in summary(folder):
        name = truth["phase"]
        if "window_start" not in truth:
            phase = _phases_of_run_main(folder)[name]
            found.append((name, phase["start"] + TRIM_SECONDS, phase["end"], truth))
            continue
        segments = [(f"{name} {i}", segment) for i, segment in enumerate(truth["segments"])]
        for one, facts in [(name, truth), *segments]:
            start = facts["window_start"] - 0.01
            found.append((one, start, start + facts["window_s"] + 0.5, facts))
    return found


def _row(frame: pl.DataFrame, start: float, end: float, **settings: Any) -> dict[str, Any]:
    """Evidence of the minutes of a stretch, from the scrapes inside it alone."""
    first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    inside = frame.filter(pl.col("time").is_between(first, last))
    asked = grid(inside).group_by(KEY).agg(pl.col("start").min(), pl.col("end").max())
    table = evidence(inside, asked.select(WINDOW_SCHEMA.keys()), serving(frame, **settings))
    rows = table.with_columns(
        decode_requests_per_forward_pass=pl.col("itl_seconds_count") / pl.col("forward_passes"),
        prompt_rate=pl.col("prompt_tokens_total") / pl.col("duration_seconds"),
        steps_rate=pl.col("forward_passes") / pl.col("duration_seconds"),
        queue_mean=pl.col("queue_seconds_sum") / pl.col("queue_seconds_count"),
        ttft_mean=pl.col("ttft_seconds_sum") / pl.col("ttft_seconds_count"),
    ).with_columns(
        *(
            quantile(table[f"{name}_buckets"], table[f"{name}_edges"], q / 100).value.alias(
                f"{name}_p{q}"
            )
            for name in BUCKETED
            for q in (50, 95)
        ),
    )
    return rows.row(0, named=True)


def _rows(frame: pl.DataFrame, stretches: list[tuple[str, float, float, Any]]) -> list[Any]:
    return [_row(frame, start, end) for _, start, end, _ in stretches]


def _last_digit(value: float) -> float:
    """Half a unit of the last printed digit, rounded up a little for a truth cut, not rounded."""
    text = repr(value)
    return 10.0 ** -len(text.partition(".")[2]) if "." in text else 1.0


@pytest.mark.parametrize(("run", "stretches"), [("run_main", 6), ("run_cap", 36), ("run_slow", 36)])
def test_every_signal_of_the_truth(shared_data: Path, run: str, stretches: int) -> None:
    listed = _stretches(shared_data, run)
    assert len(listed) == stretches
    wrong = []
    checked = 0
    for (name, _, _, truth), row in zip(
        listed, _rows(recording(shared_data / "vllm-0.32" / run), listed), strict=True
    ):
        for key, (column, factor) in SIGNALS.items():
            if key not in truth:
                continue
            checked += 1
            found, expected = row[column], truth[key]
            allowed = max(0.05 * abs(expected), _last_digit(expected))
            if found is None or abs(found * factor - expected) > allowed:
                wrong.append(f"{name}: {key} is {expected}, {column} says {found}")
        assert row["preemptions_per_second"] * row["duration_seconds"] == truth["preemptions"]
        assert row["restarted"] is False
    assert not wrong, "\n".join(wrong)
    assert checked >= 20 * stretches * 0.8


def test_the_requests_per_pass_are_those_measured_inside_the_engine(shared_data: Path) -> None:
    for run in ("run_cap", "run_slow"):
        listed = [s for s in _stretches(shared_data, run) if " " not in s[0]]
        rows = _rows(recording(shared_data / "vllm-0.32" / run), listed)
        for (name, _, _, truth), row in zip(listed, rows, strict=True):
            inside = truth["engine_truth"]["decode_reqs_per_step"]
            assert row["decode_requests_per_forward_pass"] == pytest.approx(inside, rel=0.05), name


def test_the_share_of_waiting_scrapes_is_the_share_that_is_bound(shared_data: Path) -> None:
    """With the cap given, every scrape with waiting requests at a full cap is bound by it."""
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    for phase in summary(shared_data / "vllm-0.32" / "run_cap"):
        cap = float(phase["server_args"][1])
        start = phase["window_start"] - 0.01
        end = start + phase["window_s"] + 0.5
        row = _row(frame, start, end, max_num_seqs=cap, max_num_batched_tokens=1024.0)
        assert row["limit_binding_share_10m_ratio"] == pytest.approx(
            phase["share_scrapes_waiting"], abs=0.02
        ), phase["phase"]
        assert row["max_num_seqs_inferred"] is False
        wanted = "max_num_seqs" if phase["phase"] == "cap8_heavy" else "none"
        assert row["binding_limit"] == wanted, phase["phase"]


def test_minutes_add_up_to_the_counters_own_totals(shared_data: Path) -> None:
    """run_cap has one restart: last - first before it, and all of what came after it."""
    frame = recording(shared_data / "vllm-0.32" / "run_cap").filter("ok")
    gap = frame.with_columns(step=pl.col("time").diff()).sort(
        "step", descending=True, nulls_last=True
    )
    restart = gap["time"][0]
    first, last = frame.row(0, named=True), frame.row(-1, named=True)
    end = frame.filter(pl.col("time") < restart).row(-1, named=True)
    everything = recording(shared_data / "vllm-0.32" / "run_cap")
    minutes = rows_of(everything)
    for name in (
        "generation_tokens_total",
        "prompt_tokens_total",
        "finished_requests_total",
        "itl_seconds_count",
        "itl_seconds_sum",
        "iteration_tokens_sum",
        "prompt_tokens_count",
    ):
        exact = end[name] - first[name] + last[name]
        assert minutes[name].sum() == pytest.approx(exact, rel=1e-12), name
    assert minutes["restarted"].sum() == 1
    # and the 6,661 requests of each half were counted, with the warm-up request of each start
    assert minutes["finished_requests_total"].sum() == pytest.approx(2 * 6661, abs=2)
