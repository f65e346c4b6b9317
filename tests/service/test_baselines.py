"""Baselines in a tick: which hold, what they remember, which minutes they leave out, own days."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import polars as pl
import pytest
from fakes.manual_clock import ManualClock
from service_cases import shipped_plan

from driftwatch.baselines.candidates import Material, subjects
from driftwatch.baselines.in_force import in_force, no_releases, update_releases, with_releases
from driftwatch.baselines.proposals import marked, propose
from driftwatch.baselines.windows import Acceptance, accepted_baseline, baselines_of, measured
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.references import Reference, References, TargetDays
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.run import Service
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store

KEY, OTHER = TargetKey("host:8000", "0"), TargetKey("host:8001", "0")
START = datetime(2026, 11, 21, 8, 48, tzinfo=UTC)
BASELINE = Window(START, START + timedelta(minutes=21))
PLAN = shipped_plan()


@pytest.fixture(scope="module")
def recording(shared_data: Path) -> RecordingSource:
    return RecordingSource(shared_data / "vllm-0.32" / "run_slow")


@pytest.fixture(scope="module")
def collected(recording: RecordingSource) -> Collected:
    return recording.collect(*recording.span())


@pytest.fixture(scope="module")
def baseline(collected: Collected) -> Baseline:
    """Of the recorded server's 21 minutes at its own speed."""
    targets = PLAN.assign(collected.targets)
    found = measured(collected.scrapes, BASELINE, targets, PLAN)
    accepted = Acceptance("ana", BASELINE.end, "it ran alone")
    (made,) = baselines_of(found, BASELINE, targets.values(), accepted).every
    return made


def _target(key: TargetKey = KEY, **labels: str) -> Target:
    return Target(key, {"model_name": "tiny-llama", **labels}, pool="tiny-llama")


def _ran(baseline: Baseline, fingerprint: Fingerprint) -> Baseline:
    """The same with another fingerprint."""
    return baseline.model_copy(update={"fingerprint": fingerprint})


def test_a_baseline_survives_its_row_to_the_bit(baseline: Baseline) -> None:
    back = Baseline.read(baseline.text())
    assert back == baseline
    assert back.reference is not None
    assert back.reference["reference_prompt_tokens_edges"][-1] == inf


def test_a_pool_whose_servers_have_their_own_baselines_is_its_servers(baseline: Baseline) -> None:
    own = tuple(baseline.model_copy(update=k._asdict() | {"id": k.instance}) for k in (KEY, OTHER))
    targets = {key: _target(key) for key in (KEY, OTHER)}
    found = [
        [
            one.name
            for one in subjects(Material(pl.DataFrame, targets, PLAN, baselines=b), "tiny-llama")
        ]
        for b in (Baselines(own), Baselines(own[:1]))
    ]
    assert found == [["host:8000", "host:8001"], ["tiny-llama"]]


SAME, KNOBS = {"vllm": "0.32.0"}, {"max_num_seqs": "7"}
CHANGED = "vllm 0.32.0 → 0.33.0 (label vllm_version)"
OTHER_SERVER = "is of another server (model_name tiny-llama → big)"


# what ran with the baseline besides, labels now → is it in force, what of the release changed, why
@pytest.mark.parametrize(
    ("ran", "labels", "holds", "changed", "why"),
    [
        ({}, {}, True, None, None),
        ({}, {"model_name": "big"}, False, None, OTHER_SERVER),
        ({"knobs": KNOBS}, {}, True, None, None),
        ({"release": SAME}, {"vllm_version": "0.32.0"}, True, "none", None),
        ({"release": SAME}, {"vllm_version": "0.33.0"}, True, CHANGED, None),
        ({"release": {}}, {"vllm_version": "0.33.0"}, True, None, None),
        ({"release": SAME}, {}, True, None, None),
    ],
)
def test_which_baseline_is_in_force(
    baseline: Baseline,
    ran: dict[str, dict[str, str]],
    labels: dict[str, str],
    holds: bool,
    changed: str | None,
    why: str | None,
) -> None:
    held = _ran(baseline, replace(baseline.fingerprint, **ran))
    found = in_force(Baselines((held,)), {KEY: _target(**labels)}, PLAN)
    assert found.baselines.of_target(*KEY, "tiny-llama") is (held if holds else None)
    assert len(found.reference) == holds
    assert found.frame["release_change"].to_list() == [changed]
    (refused,) = found.frame["baseline_refused"]
    assert (why is None) == (refused is None)
    assert refused is None or why in refused


IMAGES = ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.33.0")


def _minutes(*ends: datetime) -> pl.DataFrame:
    rows = [(*KEY, end - timedelta(minutes=1), end) for end in ends]
    return pl.DataFrame(rows, schema=["instance", "engine", "start", "end"], orient="row")


def _with_image(image: str, baselines: Baselines, old: pl.DataFrame, at: datetime) -> pl.DataFrame:
    return update_releases(
        old, in_force(baselines, {KEY: _target(kube_image=image)}, PLAN).frame, at
    )


@pytest.mark.parametrize("with_own", [True, False])
def test_a_change_that_was_seen_counts_where_no_pin_knows_the_release(
    baseline: Baseline, with_own: bool
) -> None:
    """A replay takes its own proposal for a baseline: nothing remembers what ran then."""
    baselines = Baselines((baseline,)) if with_own else Baselines()
    changed = BASELINE.end + timedelta(hours=2)
    releases = _with_image(IMAGES[0], baselines, no_releases(), BASELINE.end)
    releases = _with_image(IMAGES[1], baselines, releases, changed)
    frame = in_force(baselines, {KEY: _target(kube_image=IMAGES[1])}, PLAN).frame
    soon, late = changed + timedelta(minutes=30), changed + timedelta(hours=25)
    found = with_releases(_minutes(changed - timedelta(minutes=5), soon, late), frame, releases)
    # without a baseline a law learns what runs for a day, and no longer tells it apart
    said = (
        f"image {IMAGES[0]} → image {IMAGES[1]} since {changed:%Y-%m-%d %H:%M} UTC "
        "(kube_pod_container_info)"
    )
    expected = [None, said, said] if with_own else ["none", said, "none"]
    assert found["release_change"].to_list() == expected


def test_the_pools_pin_is_every_targets_and_its_own_goes_first(
    collected: Collected, baseline: Baseline
) -> None:
    twin = collected.scrapes.with_columns(instance=pl.lit(OTHER.instance))
    both = pl.concat([collected.scrapes, twin]).sort("instance", "engine", "time")
    targets = {KEY: _target(), OTHER: _target(OTHER)}
    found = measured(both, BASELINE, targets, PLAN)
    accepted = Acceptance("ana", BASELINE.end, "")
    pool = accepted_baseline(found, BASELINE, list(targets.values()), accepted, "pool")
    assert pool is not None
    assert pool.load_model is not None
    assert baseline.load_model is not None
    assert pool.load_model.minutes == baseline.load_model.minutes  # the same ones, of two servers
    assert pool.load_model.scrapes == 2 * baseline.load_model.scrapes
    # what one server does, not the sum of both
    for rate in ("requests_per_second", "generation_tokens_per_second", "effective_batch_size"):
        of_pool, own = (p.reference[f"reference_{rate}"] for p in (pool, baseline))
        assert of_pool == pytest.approx(own, rel=1e-6)
    held = in_force(Baselines((pool, baseline)), targets, PLAN)
    assert held.baselines.of_target(*KEY, "tiny-llama") is baseline
    assert held.baselines.of_target(*OTHER, "tiny-llama") is pool
    assert sorted(held.reference["instance"]) == [KEY.instance, OTHER.instance]


def test_a_service_takes_up_a_baseline_while_it_runs(
    shared_data: Path, baseline: Baseline, tmp_path: Path
) -> None:
    source, clock = RecordingSource(shared_data / "vllm-0.32" / "run_slow"), ManualClock(START)
    with Store.open(tmp_path / "d.db") as store:
        service, kinds = Service([source], PLAN, store, [], clock), []
        for _ in range(2):
            clock.advance(timedelta(minutes=3))
            kinds.append(set(service.tick_once().rows["reference_kind"]))
            store.add_baselines([baseline])
        service.stop()
    assert kinds == [{None}, {"baseline"}]


def test_a_proposal_stops_at_a_restart(shared_data: Path) -> None:
    """run_cap: 14 minutes, a restart, 14 minutes."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    found = source.collect(*source.span())
    rows = measured(found.scrapes, Window(*source.span()), PLAN.assign(found.targets), PLAN).minutes
    (restart,) = rows.filter("restarted")["end"]
    told = marked(rows)
    proposal = propose(told)
    assert proposal is not None
    assert proposal.until < restart or proposal.since >= restart + timedelta(minutes=9)
    reasons = set(told["left_out"].drop_nulls())
    assert "restart and the 10 min after it" in reasons
    assert told["left_out"][0] is None  # it may have run for long before


BEGIN = datetime(2026, 11, 9, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


SLEEPS = {"engine_asleep": pl.col("end").is_between(BEGIN + 20 * MINUTE, BEGIN + 29 * MINUTE)}
# for 20 minutes, and in a single one
MISSED = pl.col("end").is_between(BEGIN + 5 * MINUTE, BEGIN + 24 * MINUTE)
MISSES = {"slo_missed": MISSED | (pl.col("end") == BEGIN + 50 * MINUTE)}
RESTARTS = {"restarted": pl.col("end") == BEGIN + 20 * MINUTE}


# from when it is scraped, what is odd about its minutes → which are left out of a baseline, why
@pytest.mark.parametrize(
    ("scraped_from", "odd", "left_out", "why"),
    [
        (20, {}, range(21, 31), "its first 10 min"),
        (0, {}, range(0), None),  # it may have run for long
        (0, SLEEPS, range(20, 30), "the engine sleeps"),
        (0, MISSES, range(1, 25), "the SLO is missed"),
        (0, RESTARTS, range(20, 30), "restart and the 10 min after it"),
    ],
)
def test_minutes_that_a_baseline_leaves_out(
    scraped_from: int, odd: dict[str, pl.Expr], left_out: range, why: str | None
) -> None:
    rows = [
        {
            "instance": "h:8000",
            "engine": "0",
            "pool": "chat",
            "end": BEGIN + minute * MINUTE,
            "scrapes": 4.0 if minute > scraped_from else 0.0,
        }
        for minute in range(1, 61)
    ]
    found = marked(pl.DataFrame(rows, schema=MINUTE_SCHEMA).with_columns(**odd))
    found = found.filter(pl.col("scrapes") > 0).drop_nulls("left_out")
    assert found["end"].to_list() == [BEGIN + minute * MINUTE for minute in left_out]
    assert set(found["left_out"]) == ({why} if why else set())


def document(until: datetime, hits: float) -> Reference:
    """What a midnight before a minute learnt: one day with this share of prefix hits."""
    day = until.date() - timedelta(days=1)
    days = TargetDays(speed_slope_14d_ratio=-0.01, measures=((day, (1.0, None, hits, 0.0)),))
    return Reference("", KEY, until, days)


def ticked(shared_data: Path, hits: float | None, store: Store) -> tuple[State, Outcome, datetime]:
    """Fifteen minutes of run_main, whose prompts find 12 % of their tokens in the cache."""
    source = RecordingSource(shared_data / "vllm-0.32/run_main")
    begins, _ = source.span()
    until = begins.replace(second=0, microsecond=0) + timedelta(minutes=15)
    collected = source.collect(begins, until)
    source.close()
    learnt = [] if hits is None else [document(until, hits)]
    state = State(detection=Detection(references=References().with_newer(learnt)))
    given = TickInput({"": Collected(collected.scrapes, collected.targets)}, until)
    after, outcome = evaluate(state, given, PLAN, store)
    return after, outcome, until


@pytest.mark.parametrize(("hits", "lost"), [(0.6, True), (0.15, False), (None, None)])
def test_a_tick_compares_prefix_hits_with_the_days_before(
    shared_data: Path, hits: float | None, lost: bool | None
) -> None:
    with Store.in_memory() as store:
        _, outcome, _ = ticked(shared_data, hits, store)
    last = outcome.rows.filter(pl.col("scrapes") > 0).row(-1, named=True)
    assert last["reference_prefix_cache_hit_ratio"] == hits
    assert last["reference_kind"] is None  # nobody has accepted a baseline
    known = outcome.rows.filter(pl.col("ttft_seconds_count") >= 100)["prefix_hits_lost"]
    assert len(known) > 3
    assert set(known) == {lost}
