from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from observed_cases import LogOf, MinutesOf, heavy, light, server

from driftwatch.errors import NoVerdict
from driftwatch.model import Serving, Setting
from driftwatch.recommend.traffic.arrivals import flows
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.recommend.traffic.lengths import lengths
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA
from driftwatch.recommend.traffic.stretch import clean
from driftwatch.store.minute_columns import STORED_SCHEMA, rolled_up

RUNS = ("run_cap", "run_main", "run_slow")


@pytest.mark.parametrize("run", RUNS)
def test_tokens_of_what_finished_are_those_of_the_histograms_to_the_token(
    minutes_of: MinutesOf, run: str
) -> None:
    stretch = clean(minutes_of(run))
    told = lengths(stretch, flows(stretch), np.random.default_rng(3), server=server(), longest=8192)
    for name in ("prompt_tokens", "generation_tokens"):
        ours = getattr(told, name)[told.finished]
        assert ours.sum() == stretch.rows[f"{name}_sum"].sum()
        assert len(ours) == stretch.rows[f"{name}_count"].sum()
    assert told.clipped == 0


@pytest.mark.parametrize("run", RUNS)
def test_arrivals_are_those_that_were_sent(minutes_of: MinutesOf, log_of: LogOf, run: str) -> None:
    stretch = clean(minutes_of(run).head(15))
    found = flows(stretch)
    sent = log_of(run).arrival_seconds - stretch.start.timestamp()
    true = np.histogram(sent, stretch.edges)[0]
    # a scrape is up to five seconds off a minute's edge; a queue's length there is an average
    assert found.arrived.sum() == pytest.approx(true.sum(), abs=5 * true.max() / 60)
    off = np.abs(found.arrived - true)
    assert (off <= 5 * true.max() / 60 + 3 * np.sqrt(true)).all()


def test_saturated_is_the_heavy_phase_at_the_small_cap_alone(minutes_of: MinutesOf) -> None:
    run = minutes_of("run_cap")
    assert observed_from_minutes(heavy(run), server()).saturated
    assert not observed_from_minutes(light(run), server()).saturated
    assert not observed_from_minutes(run, server()).saturated  # the second half: 64 seats
    for other in ("run_main", "run_slow"):
        assert not observed_from_minutes(minutes_of(other), server()).saturated


def test_what_comes_before_a_restart_is_left_out_and_said(minutes_of: MinutesOf) -> None:
    found = observed_from_minutes(minutes_of("run_cap"), server())
    assert found.seconds == pytest.approx(13 * 60, abs=1)
    assert any(note.endswith("not used: a restart") for note in found.notes)
    assert found.busy_windows == 13


def test_chunks_hold_what_the_rows_say(minutes_of: MinutesOf) -> None:
    rows = heavy(minutes_of("run_cap"))
    found = observed_from_minutes(rows, server())
    chunks = found.chunks
    assert dict(chunks.schema) == CHUNK_SCHEMA
    spans = chunks["end_seconds"] - chunks["start_seconds"]
    tokens = (chunks["generation_tokens_per_second"] * spans).sum()
    assert tokens == pytest.approx(rows["generation_tokens_total"].sum())
    firsts = chunks["first_tokens_per_second"] * spans
    assert firsts.sum() == pytest.approx(rows["ttft_seconds_count"].sum())
    assert firsts.min() >= 100
    assert chunks["itl_seconds"].is_between(0.001, 0.05).all()
    assert found.ttft_p95_seconds is not None and found.tpot_p95_seconds is not None
    assert found.ttft_p95_seconds > 1.0  # they queue for seconds


def test_those_that_run_or_wait_at_the_start_come_first_with_their_rest(
    minutes_of: MinutesOf,
) -> None:
    rows = heavy(minutes_of("run_cap")).tail(3)
    found = observed_from_minutes(rows, server())
    queued = found.requests.take(slice(found.carried_requests))
    # 8 ran and 53 waited, by the log
    assert found.carried_requests == pytest.approx(61, abs=15)
    assert (queued.arrival_seconds == 0).all()
    ran = queued.take(slice(flows(clean(rows)).running_first))
    assert 4 <= len(ran) <= 8
    assert (ran.cached_tokens == ran.prompt_tokens - 1).all()
    assert (found.requests.arrival_seconds[found.carried_requests :] > 0).all()
    assert found.offered_requests_per_second == pytest.approx(
        (len(found.requests) - found.carried_requests) / found.seconds
    )


def test_the_same_seed_draws_the_same_to_the_byte(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_main")
    first, again, other = (observed_from_minutes(rows, server(), seed=s) for s in (4, 4, 5))
    for name in ("arrival_seconds", "prompt_tokens", "generation_tokens", "cached_tokens"):
        ours = getattr(first.requests, name).tobytes()
        assert ours == getattr(again.requests, name).tobytes()
    assert first.requests.arrival_seconds.tobytes() != other.requests.arrival_seconds.tobytes()


def test_rows_of_ten_minutes_offer_the_same_tokens(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_slow")
    missing = [pl.lit(None, dtype).alias(c) for c, dtype in STORED_SCHEMA.items()]
    whole = rows.with_columns(m for m in missing if m.meta.output_name() not in rows.columns)
    tens = rolled_up(whole.select(*STORED_SCHEMA), 600).select(rows.columns)
    assert len(tens) < len(rows) / 5
    found = observed_from_minutes(tens, server())
    assert any("rows of 10 min" in note for note in found.notes)
    assert found.seconds == pytest.approx(tens["duration_seconds"].sum())


def test_a_gap_ends_the_stretch(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_slow")
    holed = pl.concat([rows.head(20), rows.slice(24)])
    found = observed_from_minutes(holed, server())
    assert found.start >= rows["end"][23] - timedelta(seconds=10)
    assert any("a gap without scrapes" in note for note in found.notes)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("generation_tokens_count", "request_generation_tokens not on the page"),
        ("prompt_tokens_buckets", "request_prompt_tokens: no histogram"),
    ],
)
def test_what_is_missing_is_named(minutes_of: MinutesOf, column: str, said: str) -> None:
    rows = minutes_of("run_main")
    without = rows.with_columns(pl.lit(None, rows.schema[column]).alias(column))
    with pytest.raises(NoVerdict, match=said):
        observed_from_minutes(without, server())


def test_without_a_scrape_or_a_finished_request_there_is_no_verdict(
    minutes_of: MinutesOf,
) -> None:
    rows = minutes_of("run_main")
    with pytest.raises(NoVerdict, match="no minute with a usable scrape"):
        observed_from_minutes(rows.with_columns(scrapes=0.0), server())
    idle = rows.with_columns(
        pl.lit(0.0).alias(c) for c in rows.columns if c.endswith("_count")
    ).with_columns(
        (pl.col(c).list.eval(pl.element() * 0.0)).alias(c)
        for c in rows.columns
        if c.endswith("_buckets")
    )
    with pytest.raises(NoVerdict, match="no request finished"):
        observed_from_minutes(idle, server())


def test_lengths_above_the_last_edge_need_a_bound(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_main")  # prompts of the long phase lie above 500 tokens
    column = "prompt_tokens"
    cut = rows.with_columns(
        pl.col(f"{column}_edges").list.eval(
            pl.when(pl.element() < 200).then(pl.element()).otherwise(float("inf"))
        )
    ).with_columns(
        pl.concat_list(
            pl.col(f"{column}_edges").list.eval(pl.element().filter(pl.element().is_finite())),
            pl.lit([float("inf")]),
        ).alias(f"{column}_edges")
    )
    kept = pl.col(f"{column}_edges").list.len() - 1
    cut = cut.with_columns(
        pl.concat_list(
            pl.col(f"{column}_buckets").list.head(kept),
            pl.col(f"{column}_buckets").list.tail(1),
        ).alias(f"{column}_buckets")
    )
    with pytest.raises(NoVerdict, match="max_model_len unknown"):
        observed_from_minutes(cut, server(max_model_len=None))
    bounded = observed_from_minutes(cut, server())
    assert bounded.requests.prompt_tokens.max() <= 8192
    held = observed_from_minutes(cut, server(max_model_len=None, num_gpu_blocks=257))
    assert held.requests.prompt_tokens.max() <= 256 * 32
    assert any("max_model_len unknown: no request can be longer" in note for note in held.notes)


def test_clients_that_left_are_said(minutes_of: MinutesOf) -> None:
    rows = minutes_of("run_slow")
    lost = rows.with_columns(
        (pl.col("ttft_seconds_count") * 1.2).round().alias("ttft_seconds_count")
    )
    found = observed_from_minutes(lost, server())
    assert any("their clients left" in note for note in found.notes)


@pytest.mark.parametrize("gone", ["ttft_seconds_buckets", "ttft_seconds_count"])
def test_without_times_to_first_tokens_the_gauges_tell_when_requests_came(
    minutes_of: MinutesOf, gone: str
) -> None:
    rows = heavy(minutes_of("run_cap"))
    without = rows.with_columns(pl.lit(None, rows.schema[gone]).alias(gone))
    best, found = flows(clean(rows)), flows(clean(without))
    assert found.arrived.sum() == pytest.approx(best.arrived.sum(), rel=0.03)
    assert (np.diff(found.came_at) >= 0).all() and found.came_at[-1] <= clean(rows).seconds
    said = any("time_to_first_token not on the page" in note for note in found.notes)
    assert said == (gone == "ttft_seconds_count")
    assert observed_from_minutes(without, server()).saturated


def test_no_request_is_longer_than_the_engine_takes(minutes_of: MinutesOf) -> None:
    """Prompts of the bucket that max_model_len lies in end below it."""
    known = replace(server(), serving=Serving(max_model_len=Setting(2460.0, "metrics", "the page")))
    minutes = minutes_of("run_main")
    for seed in (0, 1):
        requests = observed_from_minutes(minutes, known, seed=seed).requests
        assert int(requests.prompt_tokens.max()) <= 2459
        assert int((requests.prompt_tokens + requests.generation_tokens).max()) <= 2460
