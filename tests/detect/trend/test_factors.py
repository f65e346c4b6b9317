"""What a change of throughput is made of, on real servers: the factors multiply to the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pipeline_cases import recording, serving, whole
from trend_cases import MINUTE, PLAIN, folded, pin_of, recorded

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.speed.load_model import LoadModel, fit
from driftwatch.detect.stage import Memory, detect
from driftwatch.detect.trend.baselines import FACTORS
from driftwatch.diagnose.evidence_table import evidence_table
from driftwatch.signals.minutes import no_minutes

VLLM = Path("vllm-0.32")
ALL = pl.fold(pl.lit(1.0), lambda a, b: a * b, [pl.col(f) for f in FACTORS])


def detected(minutes: pl.DataFrame, pin: Baseline) -> pl.DataFrame:
    told, _ = detect(minutes, Memory(), Baselines((pin,)), PLAIN)
    return minutes.hstack(told)


@pytest.fixture(scope="module")
def slowed(shared_data: Path) -> tuple[pl.DataFrame, Baseline]:
    """run_slow beside its columns, pinned on the whole minutes of its baseline."""
    minutes = recorded(shared_data / VLLM / "run_slow")
    phases = json.loads((shared_data / VLLM / "run_slow" / "phases.json").read_text())["phases"]
    since = minutes["end"][0] - MINUTE
    until = datetime.fromtimestamp(phases[0]["end"] // 60 * 60, tz=UTC)
    model = fit(minutes.filter(pl.col("end") <= until))
    assert isinstance(model, LoadModel)
    pin = replace(pin_of(minutes, since, until), model=model)
    return detected(minutes, pin), pin


def over_ten(name: str) -> pl.Expr:
    return pl.col(name).rolling_sum(10, min_samples=10)


def test_the_factors_multiply_to_the_whole_exactly(slowed: tuple[pl.DataFrame, Baseline]) -> None:
    told, pin = slowed
    before = pin.reference["reference_tokens_per_second_per_gpu"][0]
    rows = told.with_columns(
        whole=over_ten("generation_tokens_total") / over_ten("duration_seconds") / before,
        product=ALL,
    ).drop_nulls("product")
    assert len(rows) > 25
    error = (rows["product"] / rows["whole"] - 1).drop_nulls()
    assert len(error) > 25
    assert error.abs().max() < 1e-9


def test_run_slow_is_told_as_slow_with_a_batch_that_grew(
    slowed: tuple[pl.DataFrame, Baseline], shared_data: Path
) -> None:
    told, pin = slowed
    phases = json.loads((shared_data / VLLM / "run_slow" / "phases.json").read_text())["phases"]
    last = datetime.fromtimestamp(phases[1]["end"] // 60 * 60, tz=UTC)
    row = told.filter(pl.col("end") == last).row(0, named=True)
    assert row["throughput_factor_speed_ratio"] == pytest.approx(0.75, abs=0.08)
    # the same requests a second, at longer steps: more of them at once
    assert row["throughput_factor_batch_ratio"] > 1.2
    assert row["throughput_factor_gpus_ratio"] == 1.0
    assert row["throughput_factor_first_tokens_ratio"] == pytest.approx(1.0, abs=0.01)
    # beside the evidence of the same ten minutes
    frame = recording(shared_data / VLLM / "run_slow")
    asked = whole(frame, (last - timedelta(minutes=10)).timestamp(), last.timestamp())
    now = evidence_table(frame, asked, kind="chained", cut=True, serving=serving(frame)).rows
    ratio = (
        now["generation_tokens_per_second"][0]
        / pin.reference["reference_generation_tokens_per_second"][0]
    )
    product = told.filter(pl.col("end") == last).select(ALL).item()
    assert product == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("phase", ["prompt_drift_4x", "gen_drift_4x", "rate_drop_to_25pct"])
def test_phases_of_run_main_within_two_percent(phase: str, shared_data: Path) -> None:
    """Real lengths ×4 and a quarter of the rate; the speed is taken as known there."""
    folder = shared_data / VLLM / "run_main"
    spans = {p["name"]: p for p in json.loads((folder / "phases.json").read_text())["phases"]}
    frame, minutes = recording(folder), recorded(folder)

    def inside(name: str) -> tuple[datetime, datetime]:
        span = spans[name]
        first = -(-span["start"] // 60) * 60
        return tuple(  # type: ignore[return-value]
            datetime.fromtimestamp(at, tz=UTC) for at in (first, span["end"] // 60 * 60)
        )

    since, until = inside("baseline")
    pin = pin_of(minutes, since, until)
    start, end = inside(phase)
    rows = minutes.filter((pl.col("end") > start) & (pl.col("end") <= end)).with_columns(
        speed_at_equal_load_ratio=pl.lit(0.97)
    )
    told = folded(rows, pins=Baselines((pin,)))[0].tail(1)
    product = told.select(ALL).item()
    now = evidence_table(
        frame,
        whole(frame, start.timestamp(), end.timestamp()),
        kind="chained",
        cut=True,
        serving=serving(frame),
    ).rows
    ratio = (
        now["generation_tokens_per_second"][0]
        / pin.reference["reference_generation_tokens_per_second"][0]
    )
    assert product == pytest.approx(ratio, rel=0.02)
    assert max(abs(told[name].item() - 1) for name in FACTORS) > 0.1


def test_ten_minutes_begin_anew_at_a_restart(slowed: tuple[pl.DataFrame, Baseline]) -> None:
    minutes, pin = slowed[0].drop(FACTORS), slowed[1]
    minutes = minutes.select(*no_minutes().columns, "speed_at_equal_load_ratio")
    restart = minutes.with_row_index("i").with_columns(restarted=pl.col("i") == 30).drop("i")
    cut, _ = folded(restart, pins=Baselines((pin,)))
    alone, _ = folded(minutes[31:], pins=Baselines((pin,)))
    assert cut[30].select(FACTORS).null_count().row(0)[0] == 1
    for name in FACTORS:
        assert cut[name][31:40].to_list() == alone[name][:9].to_list()


def test_what_is_unknown_is_no_factor(slowed: tuple[pl.DataFrame, Baseline]) -> None:
    minutes, pin = slowed
    minutes = minutes.select(no_minutes().columns)
    told, _ = folded(
        minutes.with_columns(gpu_count=pl.lit(None, pl.Float64)), pins=Baselines((pin,))
    )
    for name in ("load", "speed", "gpus"):  # neither a speed nor a number of GPUs
        assert told[f"throughput_factor_{name}_ratio"].is_null().all()
    for name in ("batch", "first_tokens"):
        assert told[f"throughput_factor_{name}_ratio"].is_not_null().all()
    idle = minutes.with_columns(pl.col("itl_seconds_sum", "itl_seconds_count") * 0.0)
    nothing, _ = folded(idle, pins=Baselines((pin,)))
    assert all(nothing[name].is_null().all() for name in FACTORS[:4])
