"""No value that a server serves ends a tick, and what one serves costs no other anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from service_cases import shipped_plan

from driftwatch.collect.pages import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import evaluate, isolate
from driftwatch.store.store import Store

T0 = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
EVERY = timedelta(seconds=15)
SCRAPES = 13
HEALTHY, HOSTILE = "healthy:8000", "hostile:8000"
PLAN = shipped_plan()


def page(scrape: int, changed: Mapping[str, str] | None = None, more: Sequence[str] = ()) -> str:
    """A busy server's page at one scrape; ``changed``: wire name → what it says instead."""
    seconds = scrape * EVERY.total_seconds()
    said = {
        "vllm:num_requests_running": "12",
        "vllm:num_requests_waiting": "0",
        "vllm:kv_cache_usage_perc": "0.4",
        "vllm:generation_tokens_total": repr(1000.0 + 900 * seconds),
        "vllm:prompt_tokens_total": repr(1000.0 + 2000 * seconds),
        "vllm:request_success_total": repr(10.0 + 4 * seconds),
        "vllm:generation_tokens_created": repr(T0.timestamp() - 900),
        "vllm:num_preemptions_total": "0",
    } | {k: v for k, v in (changed or {}).items() if k != "process_start_time_seconds"}
    start = (changed or {}).get("process_start_time_seconds", repr(T0.timestamp() - 1000))
    lines = [f"process_start_time_seconds {start}"]
    lines += [f'{name}{{engine="0",model_name="m"}} {value}' for name, value in said.items()]
    steps = 50.0 * seconds
    for le, share in (("64", 0.5), ("512", 0.9), ("+Inf", 1.0)):
        lines.append(
            f'vllm:iteration_tokens_total_bucket{{engine="0",model_name="m",le="{le}"}} '
            f"{steps * share}"
        )
    lines.append(f'vllm:iteration_tokens_total_count{{engine="0",model_name="m"}} {steps}')
    lines.append(f'vllm:iteration_tokens_total_sum{{engine="0",model_name="m"}} {steps * 80}')
    return "\n".join([*lines, *more, ""])


def _time(scrape: int) -> datetime:
    return T0 + scrape * EVERY


def _listed(frame: pl.DataFrame) -> dict[TargetKey, Target]:
    keys = [TargetKey(i, e) for i, e in frame.select("instance", "engine").unique().iter_rows()]
    return {key: Target(key, {"instance": key.instance}) for key in keys}


def _ticks(pages: Mapping[str, Sequence[str]]) -> list[Outcome]:
    """A tick every 30 s over these servers' pages."""
    parser, state, store, found = PageParser(), State(), Store.in_memory(), []
    for first in range(0, SCRAPES, 2):
        batch = parser.batch()
        for scrape in range(first, min(first + 2, SCRAPES)):
            for instance, served in pages.items():
                batch.add(instance, _time(scrape), served[scrape].encode())
        came = batch.finish()
        until = _time(min(first + 2, SCRAPES))
        brought = Collected(came.scrapes, _listed(came.scrapes), came.problems)
        state, outcome = evaluate(state, TickInput({"": brought}, until), PLAN, store)
        found.append(outcome)
    return found


def _of(outcomes: Sequence[Outcome], instance: str) -> pl.DataFrame:
    rows = [o.rows.filter(pl.col("instance") == instance) for o in outcomes if len(o.rows)]
    return pl.concat(rows)


SOUND = [page(scrape) for scrape in range(SCRAPES)]


def _with_start(value: str) -> list[str]:
    return [page(s, {"process_start_time_seconds": value}) for s in range(SCRAPES)]


@cache
def _beside_a_sound_one() -> pl.DataFrame:
    return _of(_ticks({HEALTHY: SOUND, HOSTILE: SOUND}), HEALTHY)


COLUMNS = ["end", "running_requests", "generation_tokens_per_second", "restarted"]
ODD = {
    "vllm:generation_tokens_total": "1.7e308",
    "vllm:num_requests_running": "NaN",
    "vllm:num_requests_waiting": "-1",
    "vllm:kv_cache_usage_perc": "+Inf",
    "vllm:prompt_tokens_total": str(2**1300 + 1),
    "vllm:generation_tokens_created": "5e-324",
}
ODD_SERIES = [
    'vllm:num_requests_running{engine="",model_name="\U0001f525",le="x"} -Inf',
    'vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m",le="NaN"} 2.6e11',
    'vllm:iteration_tokens_total_bucket{engine="1",model_name="m",le="-5"} -1',
    'vllm:generation_tokens_total{engine="0",model_name="m"} 7',
]


@pytest.mark.parametrize(
    "pages",
    [
        _with_start("3e67"),
        [*SOUND[:6], *_with_start("1e306")[6:]],
        [page(s, ODD) for s in range(SCRAPES)],
        [page(s, ODD if s == 5 else {}, ODD_SERIES) for s in range(SCRAPES)],
    ],
    ids=["a start of no year", "one from the middle on", "odd values", "odd series"],
)
def test_a_page_of_any_values_costs_no_other_server_anything(pages: list[str]) -> None:
    outcomes = _ticks({HEALTHY: SOUND, HOSTILE: pages})
    beside = _of(outcomes, HEALTHY)
    assert_frame_equal(beside.select(COLUMNS), _beside_a_sound_one().select(COLUMNS))
    assert beside["generation_tokens_per_second"][-1] == pytest.approx(900)
    # the sources refuse what no metric can be: nobody has to be isolated
    assert not any(outcome.not_evaluated for outcome in outcomes)


# --- what the sources let through


@pytest.mark.parametrize(
    ("count", "bad"), [(40, {0, 17, 18}), (1, {0}), (3, set()), (3, {0, 1, 2})]
)
def test_servers_that_cannot_be_evaluated_are_found_by_halving(count: int, bad: set[int]) -> None:
    fleet = [f"s-{n:02}:1" for n in range(count)]
    culprits, calls = {fleet[n] for n in bad}, 0
    batch = PageParser().batch()
    for instance in fleet:
        batch.add(instance, T0, SOUND[0].encode())
    frame = batch.finish().scrapes

    def judge(state: State, given: TickInput) -> tuple[State, Outcome]:
        nonlocal calls
        calls += 1
        scrapes = pl.concat([c.scrapes for c in given.answers.values()])
        if len(scrapes.filter(pl.col("ok") & pl.col("instance").is_in(sorted(culprits)))):
            raise ArithmeticError("no such number")
        return state, Outcome(pl.DataFrame(), pl.DataFrame(), scrapes=scrapes)

    brought = TickInput({"": Collected(frame, _listed(frame))}, T0)
    if len(bad) == count > 1:  # what fails for every server is no page's fault
        with pytest.raises(ArithmeticError):
            isolate(judge, State(), brought)
        return
    _, outcome = isolate(judge, State(), brought)
    assert set(outcome.not_evaluated) == culprits
    failed = outcome.scrapes.filter(~pl.col("ok"))
    assert set(failed["instance"]) == {p.where for p in outcome.problems} == culprits
    said = {"the scrape cannot be evaluated (ArithmeticError: no such number)"}
    assert set(failed["reason"]) == (said if culprits else set())
    assert calls <= 4 + 2 * 6 * len(bad)  # 2**6 > 40
