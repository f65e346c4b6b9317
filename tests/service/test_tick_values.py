"""No value that a server serves ends a tick, and what one serves costs no other anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from service_cases import shipped_plan

from driftwatch.collect.pages.parser import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.registry import REGISTRY
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.isolation import Judge, isolated
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import evaluate, tick
from driftwatch.testing.prometheus_api import PrometheusApi, Series

T0 = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
EVERY = timedelta(seconds=15)
SCRAPES = 13
HEALTHY, HOSTILE = "healthy:8000", "hostile:8000"
PLAN = shipped_plan()

# what Prometheus text can say of a number, the odd ones often
values = st.one_of(
    st.sampled_from(
        ["NaN", "+Inf", "-Inf", "0", "-1", "1e300", "1.7e308", "3e67", "2.6e11", "5e-324"]
    ),
    st.sampled_from([31, 53, 63, 64, 1300]).map(lambda power: str(2**power + 1)),
    st.floats().map(repr),
    st.integers(-(2**70), 2**70).map(str),
)
label_values = st.text(st.characters(codec="utf-8", exclude_characters='\r\n\\"'), max_size=8)
_PLAIN = [m for m in REGISTRY if m.type in ("gauge", "counter")]


class Pages(tuple[str, ...]):
    """What a server served, scrape by scrape; a failure shows what is odd about it."""

    __slots__ = ()

    def __repr__(self) -> str:
        sound = {line for scrape in range(SCRAPES) for line in page(scrape).split("\n")}
        odd = {line for served in self for line in served.split("\n")} - sound
        return f"Pages with {sorted(odd)[:40]}"


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


@st.composite
def hostile(draw: st.DrawFn) -> Pages:
    """The pages of one server that says anything at all at some of its scrapes."""
    pages = []
    odd = draw(st.lists(st.sampled_from(_PLAIN), min_size=1, max_size=6))
    at = draw(st.sets(st.integers(0, SCRAPES - 1), min_size=1))
    for scrape in range(SCRAPES):
        if scrape not in at:
            pages.append(page(scrape))
            continue
        changed = {m.wire_name: draw(values) for m in odd}
        more = []
        for metric in draw(st.lists(st.sampled_from(REGISTRY), max_size=4)):
            engine, model = draw(st.sampled_from(["0", "0", "1", "", "x" * 50])), draw(label_values)
            suffix = draw(st.sampled_from(["_bucket", "_sum", "_count", ""]))
            le = draw(st.sampled_from(["1", "1.0", "+Inf", "NaN", "-5", "1e300", "x"]))
            odd_label = draw(label_values)
            labels = f'engine="{engine}",model_name="{model}",le="{le}",odd="{odd_label}"'
            more.append(f"{metric.wire_name}{suffix}{{{labels}}} {draw(values)}")
        if draw(st.booleans()):  # each series once more, with other numbers
            more += [
                f"{line.rpartition(' ')[0]} {draw(values)}" for line in page(scrape).split("\n")[:4]
            ]
        pages.append(page(scrape, changed, more))
    return Pages(pages)


def _time(scrape: int) -> datetime:
    return T0 + scrape * EVERY


def _listed(frame: pl.DataFrame) -> dict[TargetKey, Target]:
    keys = [TargetKey(i, e) for i, e in frame.select("instance", "engine").unique().iter_rows()]
    return {key: Target(key, {"instance": key.instance}) for key in keys}


def _ticks(pages: Mapping[str, Sequence[str]]) -> list[Outcome]:
    """A tick every 30 s over these servers' pages."""
    parser, state, found = PageParser(), State(), []
    for first in range(0, SCRAPES, 2):
        batch = parser.batch()
        for scrape in range(first, min(first + 2, SCRAPES)):
            for instance, served in pages.items():
                batch.add(instance, _time(scrape), served[scrape].encode())
        came = batch.finish()
        until = _time(min(first + 2, SCRAPES))
        brought = Collected(came.frame, _listed(came.frame), came.problems)
        state, outcome = evaluate(state, [brought], until, PLAN)
        found.append(outcome)
    return found


def _of(outcomes: Sequence[Outcome], instance: str) -> pl.DataFrame:
    rows = [o.rows.filter(pl.col("instance") == instance) for o in outcomes if len(o.rows)]
    return pl.concat(rows)


SOUND = Pages(page(scrape) for scrape in range(SCRAPES))


@cache
def _beside_a_sound_one() -> pl.DataFrame:
    return _of(_ticks({HEALTHY: SOUND, HOSTILE: SOUND}), HEALTHY)


def _with_start(value: str) -> Pages:
    return Pages(page(s, {"process_start_time_seconds": value}) for s in range(SCRAPES))


COLUMNS = ["end", "running_requests", "generation_tokens_per_second", "restarted"]


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(hostile())
@example(_with_start("3e67"))
@example(_with_start("+Inf"))
@example(Pages([*SOUND[:6], *_with_start("1e306")[6:]]))
def test_a_page_of_any_values_costs_no_other_server_anything(pages: Pages) -> None:
    outcomes = _ticks({HEALTHY: SOUND, HOSTILE: pages})
    beside = _of(outcomes, HEALTHY)
    assert_frame_equal(beside.select(COLUMNS), _beside_a_sound_one().select(COLUMNS))
    assert beside["generation_tokens_per_second"][-1] == pytest.approx(900)
    # the sources refuse what no metric can be: nobody has to be isolated
    assert not any(outcome.not_evaluated for outcome in outcomes)


@pytest.mark.parametrize("value", ["3e67", "+Inf", "NaN", "-1"])
def test_a_process_start_that_is_none_is_unknown_and_named(value: str) -> None:
    outcomes = _ticks({HEALTHY: SOUND, HOSTILE: _with_start(value)})
    told = {p.reason for o in outcomes for p in o.problems}
    assert {t.partition(" is ")[0] for t in told} == {"process_start_time_seconds"}
    rows = _of(outcomes, HOSTILE)
    assert rows["generation_tokens_per_second"][-1] == pytest.approx(900)
    assert not rows["restarted"].any()


def _as_series(instance: str, pages: Sequence[str]) -> list[Series]:
    """The series that a Prometheus would hold of these pages."""
    points: dict[str, list[tuple[float, str]]] = {}
    for scrape, served in enumerate(pages):
        for line in filter(None, served.split("\n")):
            text, _, value = line.rpartition(" ")
            points.setdefault(text, []).append((_time(scrape).timestamp(), value))
    held = [
        Series(
            {"__name__": "up", "instance": instance, "job": "vllm"},
            [(_time(scrape).timestamp(), "1") for scrape in range(SCRAPES)],
            EVERY.total_seconds(),
        )
    ]
    for text, of_series in points.items():
        name, _, inside = text.partition("{")
        labels = dict(part.split("=", 1) for part in inside.rstrip("}").split(",") if part)
        bare = {k: v.strip('"') for k, v in labels.items()}
        labels = {**bare, "__name__": name, "instance": instance, "job": "vllm"}
        held.append(Series(labels, of_series, EVERY.total_seconds()))
    return held


@st.composite
def odd_series(draw: st.DrawFn) -> Pages:
    """The same through Prometheus, whose series have one value at a time."""
    odd = draw(st.lists(st.sampled_from(_PLAIN), min_size=1, max_size=6))
    at = draw(st.sets(st.integers(0, SCRAPES - 1), min_size=1))
    return Pages(
        page(s, {m.wire_name: draw(_of_prometheus) for m in odd} if s in at else {})
        for s in range(SCRAPES)
    )


_of_prometheus = values.filter(lambda text: len(text) < 30)


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(odd_series())
@example(_with_start("3e67"))
@example(_with_start("+Inf"))
def test_a_series_of_any_values_costs_no_other_server_anything(pages: Pages) -> None:
    held = [*_as_series(HEALTHY, SOUND), *_as_series(HOSTILE, pages)]
    state, found = State(collected_until={"api": T0}), []
    with PrometheusApi(held) as api:
        asker = PrometheusAsker(api.address)
        source = PrometheusSource(
            asker, selector={"job": "vllm"}, step_seconds=15, name="api", settle_seconds=0
        )
        for tick_number in range(1, 8):
            state, outcome = tick([source], state, T0 + tick_number * 2 * EVERY, PLAN)
            found.append(outcome)
        source.close()
    healthy = _of(found, HEALTHY)
    assert healthy["generation_tokens_per_second"][-1] == pytest.approx(900)
    assert not healthy["restarted"].any()
    assert not any(outcome.not_evaluated for outcome in found)


def _dies_of(instances: set[str]) -> Judge:
    def judge(state: State, collected: Sequence[Collected]) -> tuple[State, Outcome]:
        scrapes = pl.concat([c.scrapes for c in collected])
        bad = scrapes.filter(pl.col("ok") & pl.col("instance").is_in(sorted(instances)))
        if len(bad):
            raise ArithmeticError("no such number")
        return state, Outcome(pl.DataFrame(), pl.DataFrame(), scrapes=scrapes)

    return judge


def _brought(instances: Sequence[str]) -> list[Collected]:
    batch = PageParser().batch()
    for instance in instances:
        batch.add(instance, T0, SOUND[0].encode())
    frame = batch.finish().frame
    return [Collected(frame, _listed(frame))]


@settings(deadline=None, max_examples=20)
@given(st.sets(st.integers(0, 39), min_size=1, max_size=4))
def test_servers_that_cannot_be_evaluated_are_found_by_halving(which: set[int]) -> None:
    fleet = [f"s-{n:02}:1" for n in range(40)]
    bad = {fleet[n] for n in which}
    calls = 0

    def judge(state: State, collected: Sequence[Collected]) -> tuple[State, Outcome]:
        nonlocal calls
        calls += 1
        return _dies_of(bad)(state, collected)

    _, outcome = isolated(judge, State(), _brought(fleet))
    assert set(outcome.not_evaluated) == bad
    failed = outcome.scrapes.filter(~pl.col("ok"))
    assert set(failed["instance"]) == bad
    assert set(failed["reason"]) == {
        "the scrape cannot be evaluated (ArithmeticError: no such number)"
    }
    assert {p.where for p in outcome.problems} == bad
    assert calls <= 4 + 2 * 6 * len(bad)  # 2**6 > 40


def test_what_fails_for_every_server_is_no_page_s_fault() -> None:
    fleet = ["a:1", "b:1", "c:1"]
    with pytest.raises(ArithmeticError):
        isolated(_dies_of(set(fleet)), State(), _brought(fleet))


def test_what_fails_without_any_scrape_is_raised() -> None:
    def judge(state: State, collected: Sequence[Collected]) -> tuple[State, Outcome]:
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        isolated(judge, State(), _brought(["a:1"]))
