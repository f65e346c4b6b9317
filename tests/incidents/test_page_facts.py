"""A page of a pool: the numbers of all its servers, what changed, advice that still fits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from made_incidents import NOON, incident_of
from minute_rows import rule_of

from driftwatch.detect.reference import REFERENCE_SCHEMA
from driftwatch.diagnose.states import in_schema_order
from driftwatch.incidents.incident import LastMessage, Transition
from driftwatch.model import Advice, Diagnosis, Finding, KnobMove, Reason, Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.build_page import build_page
from driftwatch.pipeline.evaluation import Evaluation, Signals
from driftwatch.pipeline.findings import findings_of
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.news import (
    advice_news,
    ended_because,
    is_other_cause,
    is_worse,
    rests_on_another_load,
    worse_news,
)
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.recent_change import COLUMNS, recent_change, release_since
from driftwatch.pipeline.state import State
from driftwatch.store.minute_columns import STORED_SCHEMA

MINUTE = timedelta(minutes=1)
KEYS = [TargetKey(f"s{i}:8000", "0") for i in range(2)]


def frame(rows: list[dict[str, Any]], schema: Any) -> pl.DataFrame:
    """Rows of a schema; what they do not name is NULL."""
    return pl.DataFrame([{**dict.fromkeys(schema), **row} for row in rows], schema=schema)


def test_the_numbers_of_a_pool_are_those_of_all_its_servers() -> None:
    """Server 1 has a third of the requests, half as long, and misses its target less often."""
    own = [
        {"ttft_in_target_10m_ratio": 0.2, "binding_waiting_requests": 30.0, "n": 300.0, "len": 2e3,
         "given_up_10m_low_ratio": 0.4, "given_up_requests_10m": 150.0},
        {"ttft_in_target_10m_ratio": 0.6, "binding_waiting_requests": 10.0, "n": 100.0, "len": 1e3,
         "given_up_10m_low_ratio": 0.0, "given_up_requests_10m": 2.0},
    ]  # fmt: skip
    evidence, minutes, references = [], [], []
    for key, one in zip(KEYS, own, strict=True):
        named = {"instance": key.instance, "engine": key.engine, "pool": "p"}
        n, length = one.pop("n"), one.pop("len")
        evidence.append(
            {
                **named,
                "start": NOON - MINUTE,
                "end": NOON,
                "ttft_seconds_count": n,
                "ttft_in_target_10m_upper_ratio": one["ttft_in_target_10m_ratio"],
                "binding_limit": "max_num_seqs",
                "batch_assembly_wait_10m_seconds": n,
                "prompt_tokens_mean": length,
                "prompt_tokens_mean_ratio": 2.0,
                "requests_per_second": n / 60,
                "finished_requests": n,
                "reference_kind": "baseline",
                "slo_share": 0.95,
                **one,
            }
        )
        counts = {"prompt_tokens_sum": n * length, "prompt_tokens_count": n}
        counts |= {"finished_requests_total": n, "duration_seconds": 60.0}
        minutes.append({**named, "end": NOON, **counts})
        references.append({**named, "kind": "baseline", "reference_prompt_tokens_mean": length / 2})
    beside = ("slo_share", "reference_kind", "reference_since", "reference_until", "binding_since",
              "ttft_seconds_count", "ttft_in_target_10m_upper_ratio")  # fmt: skip
    rows = pl.DataFrame(evidence)
    rows = in_schema_order(rows).with_columns(
        rows[name] if name in rows.columns else pl.lit(None).alias(name) for name in beside
    )
    rule = rule_of("X", "requests_wait AND batch_assembly_wait_10m_seconds > 1")
    plan = Plan(rules=(rule,), trees={})
    targets = {key: Target(key, {}, "p") for key in KEYS}
    reference = frame(references, REFERENCE_SCHEMA)
    evaluation = Evaluation(
        State(targets=targets),
        plan,
        Signals(plan.frames(targets), rows, reference),
        NOON - MINUTE,
        NOON,
        rows,
        pl.DataFrame(),
        PastMinutes(None, [frame(minutes, STORED_SCHEMA)]),
        windows=lambda one, _: one.rows.filter(pl.col("instance") == "s0:8000"),
    )
    incident = incident_of(servers=[key.instance for key in KEYS])
    (found,) = findings_of(evaluation, [Transition(incident, "firing", NOON)])
    assert found is not None
    finding, row = found
    assert row["prompt_tokens_mean"] == 2000.0  # what a simulation is asked with
    shown = {
        "finished_requests": 400.0,
        "given_up_requests_10m": 152.0,
        "given_up_10m_low_ratio": 0.3,
        "prompt_tokens_mean": 1750.0,
        "reference_prompt_tokens_mean": 875.0,
        "prompt_tokens_mean_ratio": 2.0,
        "requests_per_second": 400 / 120,  # of one of them
        "ttft_in_target_10m_ratio": 0.3,
        "binding_waiting_requests": 30.0,  # of the worst server
    }
    assert {name: finding.evidence[name] for name in shown} == pytest.approx(shown)
    assert finding.reference and finding.reference["values"]["prompt_tokens_mean"] == 875.0
    assert (len(finding.concerned), finding.of_targets) == (2, 2)


def minutes_around(
    budget: list[float | None], steps: float, restarts: list[int], hung: float = 0.0
) -> pl.DataFrame:
    """Ten minutes of each of two servers; ``restarts``: in which minute; ``hung``: s in the 5th."""
    rows = [
        {
            "instance": key.instance,
            "engine": "0",
            "end": NOON + (minute + 1) * MINUTE,
            "restarted": minute == restart,
            "max_num_batched_tokens": budget[minute],
            "max_num_seqs": 256.0,
            "step_tokens_max_of_process": steps,
            "seconds_since_last_token": hung * (minute == 4),
        }
        for key, restart in zip(KEYS, restarts, strict=True)
        for minute in range(10)
    ]
    return frame(rows, {name: STORED_SCHEMA[name] for name in COLUMNS})


@pytest.mark.parametrize(
    ("minutes", "began", "servers", "text"),
    [
        (minutes_around([512.0] * 10, 500.0, [3, 99]), 5, 2, ""),  # the other one is hit too
        (minutes_around([512.0] * 10, 500.0, [3, 99]), 5, 1, "after a change: restarted 12:03 UTC"),
        (
            minutes_around([512.0] * 4 + [2048.0] * 6, 500.0, [4, 6]),
            2,
            2,
            "then 2 of 2 restarted 12:04–12:06 UTC, max_num_batched_tokens 512 → 2048",
        ),
        (
            # the configuration still says 512, and no step of it holds more
            minutes_around([512.0] * 4 + [None] * 6, 1900.0, [4, 6]),
            2,
            4,
            "then 2 of 4 restarted 12:04–12:06 UTC, max_num_batched_tokens 512 → 1809 or more",
        ),
        (minutes_around([512.0] * 10, 500.0, [99, 99], 120.0), 3, 1, "hung until 12:05 UTC"),
    ],
)
def test_what_changed_before_and_while_it_lasts(
    minutes: pl.DataFrame, began: int, servers: int, text: str | None
) -> None:
    today, began_at = NOON.date(), NOON + began * MINUTE
    release = "vllm 0.32.0 → 0.33.0"  # no minute here brought it
    assert recent_change(minutes, servers, KEYS[:servers], began_at, release, today) == text


def test_a_command_names_the_pool_or_the_server_only_where_that_shows_its_page() -> None:
    """Another page of the pool, or of the server alone, comes first there."""
    own, pool = (
        incident_of(d, servers=[k.text for k in KEYS[:n]]) for d, n in (("b", 1), ("c", 2))
    )
    ticket = own.model_copy(update={"id": "d" * 12, "severity": "ticket"})
    one, many = (replace(FINDING, concerned=tuple(KEYS[:n]), of_targets=2) for n in (1, 2))
    for incident, finding, others, name in (
        (own, one, [pool], "s0:8000"),
        (pool, many, [own], "p"),
        (ticket, one, [pool], ticket.id),
    ):
        page = build_page(finding, incident, "firing", NOON, others=others)
        assert page.links.explain == f"driftwatch explain {name}"


def test_a_slower_release_is_named_with_its_time_a_day_later() -> None:
    cause = Diagnosis("t", "version_change", (), {})
    evidence = {"release_change": "vllm 0.32.0 → 0.33.0 (label vllm_version)"}
    finding = replace(FINDING, evidence=evidence, diagnosis=cause)
    minutes = minutes_around([512.0] * 10, 500.0, [3, 3]).with_columns(
        release_changed=pl.col("restarted")
    )
    past = PastMinutes(evaluated=[frame(minutes.to_dicts(), STORED_SCHEMA)])
    for hours, when in ((20, "restarted 2026-03-01 12:03 UTC, {}"), (30, "{} since the baseline")):
        text = release_since(finding, past, KEYS[:1], NOON + timedelta(hours=hours))
        assert text == when.format("vLLM 0.32.0 → 0.33.0")


def change(to: float, basis: Any = "simulation") -> Advice:
    moves = (KnobMove("max_num_batched_tokens", 512.0, to, None),)
    return Advice(action="change", reason=Reason("best", "best"), moves=moves, basis=basis)


REFUSED = Advice(action="insufficient", reason=Reason("gate", "the model is off by 58 %"))
FINDING = Finding("X", Target(KEYS[0], {}, "p"), NOON, {"prompt_tokens_mean": 2600.0})
LOAD = {"prompt_tokens_mean": 2200.0, "requests_per_second": 8.0}
TOLD = LastMessage(at=NOON, servers=1, load=LOAD)


def page_of(advice: Advice, **more: Any) -> Page:
    page = build_page(replace(FINDING, advice=advice), incident_of(), "firing", NOON)
    return page.model_copy(update=more)


@pytest.mark.parametrize(
    ("evidence", "moved"),
    [
        ({"prompt_tokens_mean": 2500.0}, False),
        ({"prompt_tokens_mean": 2600.0}, True),
        ({"prompt_tokens_mean": None, "requests_per_second": 9.3}, True),
        # clients that give up finish fewer requests
        ({"requests_per_second": 5.0}, False),
        ({}, False),
    ],
)
def test_advice_is_computed_anew_when_its_load_has_moved(
    evidence: dict[str, Any], moved: bool
) -> None:
    finding = replace(FINDING, evidence=evidence)
    assert rests_on_another_load(page_of(change(1024.0)), TOLD, finding) is moved
    assert not rests_on_another_load(page_of(change(1024.0, "measured")), TOLD, finding)


@pytest.mark.parametrize(
    ("before", "ttft", "tpot", "given_up", "worse"),
    [
        (0.34, 0.40, 1.0, 0.0, True),
        (0.34, 1.0, 0.40, 0.0, True),  # the worse of both targets
        (0.34, 0.52, None, 0.04, False),  # neither doubled nor past a half
        (0.12, 0.76, None, 0.04, True),  # twice as many
        (0.04, 0.91, None, 0.04, False),  # twice as many, and few
        (0.45, 0.50, None, 0.04, False),  # past a half, by less than ten points
        (0.54, 0.08, None, 0.04, True),  # nine in ten
        (0.34, 0.90, None, 0.05, True),  # clients begin to give up
        (None, 0.0, None, None, False),  # nothing to compare with
        (0.34, None, None, None, False),
    ],
)
def test_worse_is_twice_as_many_half_of_all_or_clients_that_begin_to_give_up(
    before: float | None,
    ttft: float | None,
    tpot: float | None,
    given_up: float | None,
    worse: bool,
) -> None:
    met = {"ttft_in_target_10m_ratio": ttft, "tpot_in_target_10m_ratio": tpot}
    met["given_up_10m_low_ratio"] = given_up
    told = TOLD.model_copy(update={"missed_ratio": before, "given_up_ratio": 0.04})
    finding = replace(FINDING, evidence=met)
    assert is_worse(told, finding) is worse
    incident = incident_of(told=told, page=page_of(change(1024.0)))
    for minutes, has_news in ((9, False), (9, True), (10, False)):
        news = worse_news(incident, finding, NOON + minutes * MINUTE, has_news=has_news)
        assert (news is not None) is (worse and (minutes, has_news) != (9, False))


@pytest.mark.parametrize(
    ("told", "now", "other"),
    [
        ("kv_pressure kv_cache", "token_budget_binding kv_cache", True),
        ("leaf max_num_seqs", "leaf none", True),
        ("leaf none", "leaf max_num_seqs", False),  # it fills again
        ("leaf ", "leaf max_num_seqs", False),
        ("leaf max_num_seqs", "leaf ", False),
        ("leaf max_num_seqs", "leaf kv_cache", True),
    ],
)
def test_a_limit_that_fills_again_is_no_other_cause(told: str, now: str, other: bool) -> None:
    assert is_other_cause(now, told) is other


@pytest.mark.parametrize(
    ("answer", "again", "news"),
    [
        (change(1024.0), False, ""),
        (
            change(2048.0),
            False,
            "advice now: set max_num_batched_tokens 512 → 2048, "
            "before set max_num_batched_tokens 512 → 1024",
        ),
        (change(2048.0, "measured"), False, None),
        (REFUSED, False, None),
        (REFUSED, True, "advice withdrawn: no advice: the model is off by 58 %"),
    ],
)
def test_another_answer_is_sent_and_a_forecast_for_another_load_withdrawn(
    answer: Advice, again: bool, news: str | None
) -> None:
    page = page_of(change(1024.0), asked_again_at=NOON if again else None)
    found = replace(FINDING, advice=answer, asked_again=answer is REFUSED)
    assert advice_news(page, found, TOLD) == news


@pytest.mark.parametrize(
    ("leaf", "cause", "held", "ended"),
    [
        ("gpu_throttled", None, None, "; why it fell is unknown, so it can fall again"),
        ("gpu_throttled", None, "SW power", "; held down by SW power before, so it can fall again"),
        ("concurrency_cap_binding", "demand", None, "requests are back near the baseline's"),
        ("concurrency_cap_binding", None, None, ""),
    ],
)
def test_a_resolve_says_what_is_otherwise(
    leaf: str, cause: str | None, held: str | None, ended: str
) -> None:
    diagnosis = Diagnosis("tree", leaf, (), cause)
    evidence = {"gpu_clock_event_reasons": held}
    page = build_page(
        replace(FINDING, diagnosis=diagnosis, evidence=evidence), incident_of(), "firing", NOON
    )
    clocks = {"gpu_sm_clock_hertz": [1.98e9, None], "gpu_sm_clock_ratio": [1.0, None]}
    here = pl.DataFrame({**clocks, "requests_per_second_ratio": [1.02, 1.0]})
    said = ended_because(page, here)
    assert said.removeprefix("the SM clock is back at 1,980 MHz") == ended
    assert (said != ended) == (leaf == "gpu_throttled")


@pytest.mark.parametrize(
    ("running", "ended"),
    [
        (40.0, "max_num_seqs is still 48, so it can come back"),
        (63.0, "63 requests run: max_num_seqs is not 48"),
        (None, "max_num_seqs is still 48, so it can come back"),
    ],
)
def test_a_resolve_believes_what_runs_before_the_configuration(
    running: float | None, ended: str
) -> None:
    advice = change(1024.0).model_copy(
        update={"moves": (KnobMove("max_num_seqs", 48.0, 192.0, "config"),)}
    )
    finding = replace(FINDING, diagnosis=Diagnosis("tree", "leaf", ()), advice=advice)
    page = build_page(finding, incident_of(), "firing", NOON)
    here = pl.DataFrame({"max_num_seqs": [48.0], "running_requests": [running]})
    clocks = {"gpu_sm_clock_hertz": None, "gpu_sm_clock_ratio": None}
    restarts = "2 of 2 restarted 10:50 UTC"
    ended = f"{restarts}; {ended}"
    assert ended_because(page, here.with_columns(**clocks), restarts) == ended
