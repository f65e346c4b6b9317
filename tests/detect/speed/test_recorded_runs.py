"""A real server that was slowed in place, and others that were only loaded."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from recorded_minutes import SERVING, WATCHING, minutes_of, of_run, pinned, told_of

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.speed.load_model import LoadModel, fit


@pytest.fixture(scope="module")
def phases(shared_data: Path) -> dict[str, tuple[datetime, datetime]]:
    said = json.loads((shared_data / "vllm-0.32/run_slow/phases.json").read_text())
    return {
        phase["name"]: (
            datetime.fromtimestamp(phase["start"], UTC),
            datetime.fromtimestamp(phase["end"], UTC),
        )
        for phase in said["phases"]
    }


@pytest.mark.parametrize("with_pin", [True, False], ids=["pin", "provisional"])
def test_the_slowed_engine_is_found_once_and_is_over(
    run_slow: pl.DataFrame, phases: dict[str, tuple[datetime, datetime]], *, with_pin: bool
) -> None:
    start, stop = phases["engine_slow"]
    pins, settings = Baselines(), WATCHING
    if with_pin:
        model = fit(of_run(run_slow))
        assert isinstance(model, LoadModel)
        pins, settings = pinned(model, run_slow), SERVING
    told, _ = told_of(run_slow, pins, settings)
    slower = told.filter(pl.col("slower_at_equal_load"))
    first, last = slower["end"].min(), slower["end"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    assert start < first <= start + timedelta(minutes=12)
    minutes = round((last - first) / timedelta(minutes=1)) + 1
    assert len(slower) == minutes, "one episode, without a hole"
    assert stop < last < told["end"].max()
    for moment in (first, stop.replace(second=0, microsecond=0)):
        row = told.row(by_predicate=pl.col("end") == moment, named=True)
        assert 1 - row["speed_at_equal_load_ratio"] == pytest.approx(0.25, abs=0.05)
        assert row["speed_recovered"] is False
    assert told["speed_recovered"][-1] is True
    reference = set(told["speed_reference"].drop_nulls())
    assert reference <= (
        {"own baseline, equal load", "own baseline, equal demand"}
        if with_pin
        else {"provisional, equal load", "provisional, equal demand"}
    )


@pytest.mark.parametrize("every", [12])
def test_sparse_scrapes_find_the_slowed_engine(
    shared_data: Path,
    tmp_path: Path,
    phases: dict[str, tuple[datetime, datetime]],
    every: int,
) -> None:
    """Every 12th scrape of run_slow: one a minute, 22 of them healthy."""
    recorded = shared_data / "vllm-0.32/run_slow/scrapes.jsonl.gz"
    with gzip.open(recorded, "rt") as source:
        lines = source.readlines()[::every]
    (tmp_path / "sparse").mkdir()
    with gzip.open(tmp_path / "sparse/scrapes.jsonl.gz", "wt") as kept:
        kept.writelines(lines)
    told, _ = told_of(minutes_of(tmp_path / "sparse"), Baselines(), WATCHING)
    slower = told.filter(pl.col("slower_at_equal_load"))
    first = slower["end"].min()
    assert isinstance(first, datetime)
    assert timedelta() < first - phases["engine_slow"][0] < timedelta(minutes=10)


def test_load_alone_is_not_slower(shared_data: Path, run_cap: pl.DataFrame) -> None:
    """A cap, a restart, another cap, prompts and generations ×4, and fewer requests."""
    model = fit(of_run(run_cap, timedelta(minutes=14)))
    assert not isinstance(model, LoadModel)
    assert model.reason == "14 of 20 minutes of data"
    both, _ = told_of(run_cap, Baselines(), WATCHING)
    main, _ = told_of(minutes_of(shared_data / "vllm-0.32/run_main"), Baselines(), WATCHING)
    assert not both["slower_at_equal_load"].any()
    assert not main["slower_at_equal_load"].any()
    model = fit(run_cap)
    assert isinstance(model, LoadModel)
    told, _ = told_of(run_cap, pinned(model, run_cap), SERVING)
    assert told["slower_at_equal_load"].is_not_null().sum() >= 10
    assert not told["slower_at_equal_load"].any()


def test_without_a_pin_a_service_says_what_is_missing(run_slow: pl.DataFrame) -> None:
    told, _ = told_of(run_slow, Baselines(), SERVING)
    assert told["slower_at_equal_load"].null_count() == len(told)
    assert told["speed_threshold_ratio"].null_count() == len(told)
    why = told["speed_unknown_reason"]
    assert why[5].startswith("no baseline in use yet: 5 of 20 minutes of data")
    assert why[-1] == "no baseline in use yet: driftwatch baseline propose has one"


def test_what_cannot_be_told_has_its_reason(run_slow: pl.DataFrame) -> None:
    model = fit(of_run(run_slow))
    assert isinstance(model, LoadModel)
    many = run_slow.with_columns(forward_passes_overcounted=True)
    none = run_slow.with_columns(forward_passes=pl.lit(None, dtype=pl.Float64))
    idle = run_slow.with_columns(itl_seconds_count=pl.lit(7.0))
    unseen = run_slow.with_columns(scrapes=pl.lit(0.0))
    for said, word in (
        (many, "several API servers"),
        (none, "vllm:iteration_tokens_total: not on the page"),
        (idle, "idle"),
        (unseen, "no usable scrape"),
    ):
        told, _ = told_of(said, pinned(model, run_slow), SERVING)
        assert told["slower_at_equal_load"].null_count() == len(told)
        assert told["speed_at_equal_load_ratio"].null_count() == len(told)
        assert all(word in why for why in told["speed_unknown_reason"])
        # without a baseline it is not learning, it waits in vain
        waiting, _ = told_of(said, Baselines(), WATCHING)
        assert (word in waiting["speed_unknown_reason"][-1]) is (word[0] in "sv")
