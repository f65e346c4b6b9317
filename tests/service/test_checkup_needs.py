"""doctor against the evidence itself: a rule that it calls able is not unknown forever."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from checkup_cases import COMPLETE
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.gpus import gpu_frame
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.condition import parse_condition
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.rules import Checkup
from driftwatch.evidence import BY_NAME, DETECTED
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool, TunedFor
from driftwatch.rulebook.rules import Rule
from driftwatch.rulebook.truths import can_be_true
from driftwatch.service.replay import replay

KEY = TargetKey("a:1", "0")
WHOLE = replace(COMPLETE, gpus_per_replica=None)
# NULL in this cut, with every need met, because nothing happened that they speak of
NOTHING_HAPPENED = {
    "coverage_missing_inputs",
    # no midnight learns what they compare with in nine minutes
    "prefix_hits_lost",
    "reference_given_up_ratio",
    "reference_prefix_cache_hit_ratio",
    "reference_tokens_per_output",
}


def _cut(shared_data: Path) -> pl.DataFrame:
    """Nine minutes under load, a scrape of three."""
    source = RecordingSource(shared_data / "vllm-0.32/run_cap")
    begins, _ = source.span()
    frame = source.collect(begins, begins + timedelta(minutes=9)).scrapes
    source.close()
    return frame.gather_every(3).with_columns(instance=pl.lit(KEY.instance))


def _gpus(scrapes: pl.DataFrame, **but: object) -> pl.DataFrame:
    return gpu_frame(
        [
            {
                "origin": "DCGM",
                "exporter": "n:9400",
                "time": at,
                "hostname": "n",
                "own_host": False,
                "gpu": "0",
                "uuid": "GPU-0",
                "namespace": "ml",
                "pod": "p",
                "lost": False,
                "utilization_ratio": 0.5,
                "power_watts": 500.0,
                "sm_clock_hertz": 1e9,
                "clock_event_reasons": 0.0,
                **but,
            }
            for at in scrapes["time"].to_list()
        ]
    )


class _WithGpus(FrameSource):
    def __init__(self, frame: pl.DataFrame, gpus: pl.DataFrame, target: Target) -> None:
        super().__init__(frame, {target.key: target})
        self.gpus = gpus

    def collect(self, since: object, until: object) -> Collected:
        inside = pl.col("time").is_between(since, until, closed="left")
        return Collected(self.frame.filter(inside), self.targets, gpus=self.gpus.filter(inside))


def _condition(name: str) -> str:
    """Known, whatever it is: unknown only where the column is."""
    match BY_NAME[name].dtype:
        case "bool":
            return name
        case "string":
            return f"{name} = 'x'"
    return f"{name} > 0"


def _rule(name: str, condition: str | None = None) -> Rule:
    when = parse_condition(condition or _condition(name))
    return Rule.model_construct(id=name, alert=name, group="g", severity="notice", when=when)


def _plan(pool: Pool = WHOLE, *rules: Rule) -> Plan:
    # what detectors with a past say is unknown for hours to days: LEARNING, in test_checkup.py
    every = tuple(_rule(name) for name in BY_NAME if name not in DETECTED)
    return replace(shipped_plan(), pools=(pool,), rules=rules or every)


def _target() -> Target:
    return Target(KEY, {"namespace": "ml", "pod": "p", "model_name": "m"})


def _doctor(scrapes: pl.DataFrame, gpus: pl.DataFrame, plan: Plan) -> Checkup:
    return checkup(scrapes, plan.assign({KEY: _target()}), plan, Inputs(gpus=gpus))


def _never(scrapes: pl.DataFrame, gpus: pl.DataFrame, plan: Plan) -> set[str]:
    """Rules without any verdict in the whole replay."""
    first, last = scrapes["time"].min(), scrapes["time"].max()
    source = _WithGpus(scrapes, gpus, _target())
    span = (first.replace(second=0, microsecond=0), last)  # type: ignore[union-attr]
    verdicts = pl.concat(
        outcome.verdicts for outcome in replay([source], span, plan) if outcome.verdicts.height
    )
    assert verdicts.height >= 5
    return {rule.id for rule in plan.enabled if verdicts[rule.id].is_null().all()}


def _unable(found: Checkup) -> set[str]:
    return {rule for rule, can in found.rules.items() if not can}


NOTHING = replace(Pool("chat"), tuned_for=TunedFor())
POOLS: Mapping[str, tuple[Pool, bool]] = {
    "complete": (WHOLE, True),
    "nothing said, no GPU read": (NOTHING, False),
}


@pytest.mark.parametrize("case", POOLS)
def test_every_column_as_a_rule_is_known_where_doctor_says_that_it_can_fire(
    shared_data: Path, case: str
) -> None:
    pool, read = POOLS[case]
    scrapes = _cut(shared_data)
    gpus = _gpus(scrapes) if read else gpu_frame([])
    plan = _plan(pool)
    unable, never = _unable(_doctor(scrapes, gpus, plan)), _never(scrapes, gpus, plan)
    assert unable - never == set()
    assert never - unable <= NOTHING_HAPPENED


CONDITIONS = (
    "waiting_requests > 1",
    "waiting_requests > 1 OR running_requests > 1",
    "NOT (waiting_requests > 1 OR running_requests > 1)",
    "waiting_requests IS NULL AND running_requests > 1",
    "waiting_requests IS NOT NULL AND running_requests > 1",
    "waiting_requests + running_requests > 1 OR FALSE",
    "waiting_requests NOT IN (1, 2) OR restarted",
    "waiting_requests BETWEEN 0 AND 2 AND TRUE",
    "(restarted AND waiting_requests > 1) OR (NOT restarted AND running_requests < 1)",
    "restarted = TRUE AND NOT (waiting_requests > 1)",
)


@pytest.mark.parametrize("text", CONDITIONS)
@pytest.mark.parametrize("dark", [("waiting_requests",), ("waiting_requests", "restarted")])
def test_what_can_be_true_is_what_some_values_make_true(text: str, dark: tuple[str, ...]) -> None:
    condition = parse_condition(text)
    values: dict[str, list[float | bool | None]] = {
        "waiting_requests": [None, 0.0, 1.0, 3.0],
        "running_requests": [None, 0.0, 1.0, 3.0],
        "restarted": [None, True, False],
    }
    rows = itertools.product(*([None] if c in dark else v for c, v in values.items()))
    frame = pl.DataFrame(
        list(rows),
        schema=dict(zip(values, (pl.Float64, pl.Float64, pl.Boolean), strict=True)),
        orient="row",
    )
    some = frame.select(condition.expression.alias("true"))["true"].any()
    assert can_be_true(condition, frozenset(dark)) is bool(some)
