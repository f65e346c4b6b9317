"""A question to the whole answer: servers whose engine is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from engine_minutes import BLOCKS, H100_8B, START, question_of, requests_of

from driftwatch.cli.recommend_text import rendered
from driftwatch.diagnose.not_a_knob import no_knob_because
from driftwatch.errors import WorkloadError
from driftwatch.model import KnobMove, Serving, Setting, Slo
from driftwatch.recommend.advice import Answer, Question, targets_of
from driftwatch.recommend.advise import advise
from driftwatch.recommend.measured import queue
from driftwatch.recommend.server import Server
from driftwatch.recommend.situation import NEAR
from driftwatch.recommend.verdict import CAN_WAIT
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.trial import Trial

SLO = Slo(1.0, 0.05)
CAP = SchedulerConfiguration(32, 2048, BLOCKS)  # serves 10.9 of these a second
CAPPED = requests_of(12.5, 400.0, 300.0)


@cache
def capped() -> Question:
    """max_num_seqs binds, and nothing else."""
    return question_of(CAPPED, CAP, slo=SLO, replicas=4)


@cache
def answer() -> Answer:
    return advise(capped())


def share_of(settings: SchedulerConfiguration, seed: int) -> float:
    """What the true engine makes of other requests of the same kind."""
    requests = requests_of(12.5, 400.0, 300.0, seed=seed)
    run = Trial(requests, settings).run(H100_8B).requests
    tpot = (pl.col("end_seconds") - pl.col("first_token_seconds")) / (
        pl.col("generation_tokens") - 1
    ).clip(1)
    met = run.select((pl.col("ttft_seconds") <= 1.0) & (tpot <= 0.05)).to_series()
    return float(met[len(met) // 10 :].mean())


def test_a_cap_that_binds_is_raised_and_the_forecast_holds() -> None:
    said, then, gain = answer().advice, answer().advised, answer().gain
    move = KnobMove("max_num_seqs", 32.0, said.moves[0].to_value, "config")
    assert (said.action, said.moves, said.basis) == ("change", (move,), "simulation")
    assert 64 <= said.moves[0].to_value <= 256
    assert then is not None and gain is not None
    raised = replace(CAP, max_num_seqs=round(said.moves[0].to_value))
    truth = np.mean([share_of(raised, seed) for seed in (7, 8)])
    assert truth == pytest.approx(then.in_target_ratio, abs=0.03)
    assert share_of(CAP, 7) + 0.04 < truth
    assert gain.low <= gain.mean <= gain.high and gain.chance_of_harm == 0.0
    assert said.undo == "--max-num-seqs 32" and "restart" in said.price
    assert "per server" in str(said.wrong_if)


@pytest.mark.parametrize(
    ("source", "action"), [("command line", "no_action"), ("configuration", "none")]
)
def test_minutes_know_the_pools_targets_and_not_those_of_the_command_line(
    source: Any, action: str
) -> None:
    """A healthy server whose pool misses its own target, asked about a looser one."""
    asked = question_of(requests_of(3.0, 400.0, 300.0), CAP, slo=Slo(5.0, 0.5), replicas=1)
    rows = asked.minutes.with_columns(slo_missed=pl.lit(True))
    found = advise(replace(asked, minutes=rows, slo_source=source))
    assert found.advice.action == action


def test_a_budget_that_was_inferred_is_simulated_and_the_answer_says_which_line_is_wrong() -> None:
    inferred = Setting(2048.0, "inferred", "configured 512, but steps take 2,050 tokens")
    serving = replace(capped().server.serving, max_num_batched_tokens=inferred)
    asked = replace(capped(), server=replace(capped().server, serving=serving))
    found = advise(asked, table=False)
    assert found.settings["max_num_batched_tokens"] == 2048.0 and found.advice.action == "change"
    assert found.contradiction is not None
    assert "configured 512" in found.contradiction and "serving." in found.contradiction
    assert answer().contradiction is None


def test_the_simulation_of_today_is_that_engine() -> None:
    assert all(gate.passed for gate in answer().gates)
    assert answer().settings["max_num_seqs"] == 32.0
    assert answer().requests == pytest.approx(len(CAPPED), rel=0.03)
    today = answer().today
    assert today is not None and today.capacity_requests_per_second == pytest.approx(10.9, rel=0.05)
    assert today.ttft_p95_seconds is None and today.reasons["ttft_p95_seconds"] == NEAR


def test_a_request_log_of_the_same_traffic_says_the_same() -> None:
    log = replace(CAPPED, arrival_seconds=CAPPED.arrival_seconds + START.timestamp())
    told = advise(replace(capped(), log=log), table=False)
    said, before = told.advice, answer().advice
    assert told.source == "request log"
    assert (said.action, said.moves[0].to_value) == ("change", before.moves[0].to_value)
    with pytest.raises(WorkloadError, match="the metrics"):
        advise(replace(capped(), log=log.take(slice(None, None, 2))))


def test_what_is_asked_besides_is_simulated_or_refused() -> None:
    both = {"max_num_seqs": 128.0, "max_num_batched_tokens": 1024.0}
    (pair,) = advise(replace(capped(), what_if=both), table=False).what_ifs
    assert dict(pair.knobs) == both and pair.capacity_requests_per_second
    # settings and replicas together are one configuration
    asked = {**both, "replicas": 6.0}
    (more,) = advise(replace(capped(), what_if=asked), table=False).what_ifs
    assert dict(more.knobs) == asked and (more.in_target_ratio or 0) > 0.9
    assert more.capacity_requests_per_second == pytest.approx(
        pair.capacity_requests_per_second, rel=0.03
    )
    wrong = {"max_num_seqs": 512.0, "max_num_batched_tokens": 256.0}
    (refused,) = advise(replace(capped(), what_if=wrong), table=False).what_ifs
    assert "vLLM refuses to start" in (refused.refused or "")


def test_where_kv_binds_no_cap_is_raised_and_each_alternative_is_priced() -> None:
    tight = SchedulerConfiguration(64, 2048, 800)
    asked = question_of(requests_of(6.0, 400.0, 450.0), tight, slo=Slo(2.0, 0.05), replicas=2)
    found = advise(asked, table=False)
    said = found.advice
    assert found.today is not None and (found.today.preemptions or 0.0) > 0
    assert said.action == "none" and said.moves == ()
    assert "replica" in said.instead[0] and "forecast" in said.instead[0]
    assert any("let the gateway pass at most" in words for words in said.instead[1:])
    assert any("fp8 KV cache: capacity" in words and "req/s" in words for words in said.later)
    assert all(one.in_target_ratio is not None for one in found.what_ifs)
    by_name = {next(iter(one.knobs)): one for one in found.what_ifs}
    then = by_name["kv_cache_dtype_fp8"].capacity_requests_per_second
    assert (then or 0) > 1.4 * (found.today.capacity_requests_per_second or 0)


def test_a_cap_that_no_target_shows_is_raised_for_its_capacity() -> None:
    """Of a time per token alone every request is in target, however long the queue grows."""
    found = advise(replace(capped(), slo=Slo(None, 0.05)), table=False)
    said = found.advice
    assert found.utilization_ratio is not None and found.utilization_ratio > 0.9
    assert (said.action, said.moves[0].knob) == ("change", "max_num_seqs")
    assert said.moves[0].to_value > 32 and said.effect[0].startswith("capacity")


def test_of_a_change_that_serves_too_little_no_share_has_to_be_checked() -> None:
    more = question_of(requests_of(38.0, 400.0, 300.0), CAP, slo=SLO, replicas=4)
    said = advise(more, table=False).advice
    assert said.action == "change" and said.replicas is not None and said.replicas > 4
    assert said.wrong_if == "no more requests are in target 10 min after the restart"
    assert "in the first hour" in said.effect[0] and "points)" in said.effect[0]
    assert said.not_cured == () and "in all): forecast " in said.instead[0]


def test_replicas_with_todays_settings_come_before_a_change_that_saves_none() -> None:
    long = requests_of(11.0, 2100.0, 150.0)
    asked = question_of(long, SchedulerConfiguration(96, 1024, BLOCKS), slo=SLO, replicas=4)
    queued = {"waiting_requests": 17_396.0, "instance": "a:8000"}
    found = advise(replace(asked, evidence=queued))
    said, (row, *_) = found.advice, found.what_ifs
    assert (said.action, said.moves, said.replicas) == ("none", (), 5)
    assert said.instead[0].startswith("add 1 replica (5 in all): forecast ")
    assert "no setting needed: " in said.why and said.instead[-1].startswith("set max_num_")
    assert row.knobs == {"replicas": 5.0} and (row.in_target_ratio or 0.0) >= SLO.share
    assert "5 replicas, settings as now" in rendered(found, "a")
    assert said.queue == (
        "17,396 requests wait on a:8000, 25 min of its work; a forecast holds once they are "
        "served: send it no new ones until then, or restart it (drops them)"
    )
    for waiting, do in ((9000.0, "the other queues are as long"), (17.0, "send it no new ones")):
        peer = asked.minutes.with_columns(waiting_requests=pl.lit(waiting))
        assert do in str(queue(replace(asked, beside=(peer,), evidence=queued), 10.0))
    assert queue(replace(asked, evidence={"waiting_requests": 5990.0}), 10.0) is None
    # of a pool whose size is unknown nobody knows what a replica is: the change comes first
    unknown = advise(replace(asked, replicas=None, evidence=queued), table=False).advice
    assert unknown.action == "change" and str(unknown.wrong_if).endswith("once the queue is empty")


def test_where_all_is_in_target_the_change_can_wait() -> None:
    asked = question_of(requests_of(9.0, 400.0, 300.0), CAP, slo=SLO, replicas=4)
    said = advise(asked, table=False).advice
    assert (said.action, said.reason.code) == ("change", CAN_WAIT)


def test_a_forecast_of_a_doubtful_simulation_says_so() -> None:
    rows = capped().minutes.with_columns(pl.col("running_requests") * 0.85)
    said = advise(replace(capped(), minutes=rows), table=False).advice
    assert said.effect[0].endswith("too high)") and "(rough: simulated running" in said.effect[0]


@pytest.mark.parametrize(
    ("value", "reason"), [(256.0, "as advised "), (128.0, "as advised "), (40.0, "with 40 now ")]
)
def test_an_open_pages_change_stays_while_another_brings_no_more(value: float, reason: str) -> None:
    best = answer().advice.settings["max_num_seqs"]
    move = KnobMove("max_num_seqs", 32.0, value)
    before = answer().advice.model_copy(
        update={"moves": (move,), "at": capped().at - timedelta(minutes=10)}
    )
    found = advise(replace(capped(), before=before))
    said = found.advice
    assert said.settings == {"max_num_seqs": best if reason.startswith("with") else value}
    assert (said.value_reason or "").startswith(reason)
    assert best in said.settings.values() or f" {best:.0f} brings no more" in said.value_reason
    # one set of figures, and the row of what was advised before
    assert said.forecast is not None and found.advised is not None
    assert said.forecast["in_target_ratio"] == found.advised.in_target_ratio
    assert {"max_num_seqs": value} in [dict(one.knobs) for one in found.candidates]


def test_deep_overload_is_answered_with_replicas() -> None:
    """Twice of what the GPU computes."""
    wide = SchedulerConfiguration(256, 2048, BLOCKS)
    found = advise(question_of(requests_of(40.0, 1200.0, 200.0), wide, slo=SLO, replicas=2))
    assert found.advice.action == "none"
    assert found.utilization_ratio is not None and found.utilization_ratio > 1.7
    added = int(found.advice.instead[0].removeprefix("add ").split()[0])
    # at a fifth more than today four would miss the target share
    assert added + 2 == int(np.ceil(1.2 * 2 * found.utilization_ratio))
    (replicas,) = [one for one in found.what_ifs if "replicas" in one.knobs]
    assert (replicas.in_target_ratio or 0.0) > SLO.share


@pytest.mark.parametrize(
    ("rate", "prompt", "settings", "slo", "action", "said"),
    [
        # room: nothing is asked of anybody
        (3.0, 400.0, SchedulerConfiguration(256, 2048, BLOCKS), SLO, "no_action", "of capacity"),
        # raising a budget of 2048 is not the answer to long prompts
        (9.0, 4000.0, SchedulerConfiguration(256, 2048, BLOCKS), Slo(1.0, 0.03), "none", ""),
        # no configuration meets it
        (4.0, 1200.0, SchedulerConfiguration(256, 512, BLOCKS), Slo(1e-3, 1e-3), "none", "alone"),
    ],
)
def test_where_no_knob_is_the_answer(
    rate: float, prompt: float, settings: SchedulerConfiguration, slo: Slo, action: str, said: str
) -> None:
    found = advise(question_of(requests_of(rate, prompt, 120.0), settings, slo=slo), table=False)
    assert (found.advice.action, found.advice.moves) == (action, ())
    assert said in found.advice.why
    if said == "alone":
        assert not any("replica" in words for words in found.advice.instead)


def without_cap(question: Question) -> Question:
    serving = replace(question.server.serving, max_num_seqs=None)
    return replace(question, server=replace(question.server, serving=serving))


def idle(question: Question) -> Question:
    return replace(
        without_cap(question),
        minutes=question.minutes.with_columns(waiting_requests=pl.lit(0.0)),
        slo=None,
    )


def told_seqs(value: float) -> Callable[[Question], Question]:
    """Another max_num_seqs than it runs with."""

    def told(question: Question) -> Question:
        serving = replace(question.server.serving, max_num_seqs=Setting(value, "config"))
        return replace(question, server=replace(question.server, serving=serving))

    return told


def with_evidence(**evidence: Any) -> Callable[[Question], Question]:
    return lambda question: replace(question, evidence=evidence)


@pytest.mark.parametrize(
    ("changed", "action", "said"),
    [
        (without_cap, "insufficient", "max_num_seqs unknown"),
        (
            lambda q: replace(q, server=replace(q.server, unsupported=("LoRA",))),
            "insufficient",
            "driftwatch does not simulate LoRA",
        ),
        (lambda q: replace(q, minutes=no_minutes()), "insufficient", "no minute with a usable"),
        (lambda q: replace(q, minutes=q.minutes.head(2)), "insufficient", "needs 3 minutes with"),
        (idle, "no_action", "no request waited"),
        # … but a target of the command line is missed: that is not "nothing to do"
        (lambda q: replace(idle(q), slo=Slo(None, 0.001)), "insufficient", "max_num_seqs unknown"),
        # settings that are not those of this server
        (told_seqs(8), "insufficient", "requests run at once: max_num_seqs is not 8"),
        (told_seqs(256), "insufficient", "of requests met TTFT 1 s and TPOT 50 ms, simulated 100"),
        (
            lambda q: replace(q, minutes=q.minutes.with_columns(itl_seconds_sum=pl.lit(None))),
            "insufficient",
            "inter_token_latency_seconds: not on the page",
        ),
        (with_evidence(engine_kind="pooling"), "insufficient", "a pooling engine"),
        (with_evidence(gpus_lost=1.0), "none", "1 GPU is lost"),
        (
            lambda q: with_evidence(binding_limit="kv_cache", preemptions_per_second=0.4)(
                without_cap(q)
            ),
            "none",
            "never raise max_num_seqs",
        ),
        (with_evidence(binding_limit="deferred"), "none", "deferred"),
        (
            with_evidence(
                slower_at_equal_load=True, speed_at_equal_load_ratio=0.81, slo_missed=True
            ),
            "none",
            "do not change a setting: the engine is 19 % slower at equal load; add a replica",
        ),
        (lambda q: replace(q, leaf="replica_imbalance"), "none", "a peer has free slots"),
        (
            lambda q: replace(
                with_evidence(release_change="vllm 0.32.0 → 0.33.0 (label vllm_version)")(q),
                leaf="version_change",
            ),
            "none",
            "changed (vllm 0.32.0 → 0.33.0): go back to vllm 0.32.0, then run driftwatch recommend",
        ),
    ],
)
def test_without_a_simulation_the_answer_names_why(
    changed: Callable[[Question], Question], action: str, said: str
) -> None:
    found = advise(changed(capped()))
    assert (found.advice.action, found.advice.moves) == (action, ())
    assert said in found.advice.why


def test_deferred_requests_of_a_decode_only_engine_are_no_cause() -> None:
    """Each waits for its KV cache first (docs/sre/engines.md); its leaf still says what it says."""
    waits = {"waiting_deferred_share_10m_ratio": 0.9, "binding_limit": "deferred"}
    decode = {**waits, "engine_kind": "decode_only"}
    assert no_knob_because(decode, None) is None
    assert no_knob_because(decode, "deferred_admission") is not None
    assert no_knob_because({**decode, "slower_at_equal_load": True}, None) is not None


@pytest.mark.parametrize(
    ("rate", "action", "basis"),
    [
        (12.5, "insufficient", None),
        (25.0, "none", "measured"),  # a queue that never empties: what is completed is known
    ],
)
def test_what_the_simulation_does_not_reproduce(
    rate: float, action: str, basis: str | None
) -> None:
    """Half as many run as these settings and this traffic make: something else holds requests."""
    asked = question_of(requests_of(rate, 400.0, 300.0), CAP, slo=SLO, replicas=4)
    rows = asked.minutes.with_columns(
        pl.col("running_requests") * 0.5, kv_cache_usage_ratio=pl.lit(0.2)
    )
    found = advise(replace(asked, minutes=rows))
    said = found.advice
    assert found.check is not None and tuple(found.check.failed) == ("running_requests",)
    assert found.gates[0].name == "fit_running" and not found.gates[0].passed
    assert "running requests" in said.why and "limit 10 %" in said.why
    assert (said.action, said.basis) == (action, basis)
    assert found.advised is None and found.gain is None
    if basis == "measured":
        assert said.instead[0].startswith("add at least ") and "arrive" in said.instead[0]


@pytest.mark.parametrize(
    ("slo", "reference", "targets", "source"),
    [
        (Slo(1.0, None), {}, Slo(1.0, None), "configuration"),
        (
            None,
            {"reference_ttft_seconds_p95": 0.4, "reference_tpot_seconds_p95": 0.02},
            Slo(0.8, 0.04),
            "derived from the baseline",
        ),
        (None, {"reference_ttft_seconds_p95": 0.0}, None, "unknown"),
    ],
)
def test_targets_are_given_or_twice_the_baselines(
    slo: Slo | None, reference: dict[str, float], targets: Slo | None, source: str
) -> None:
    question = Question(START, no_minutes(), Server(Serving()), slo, reference=reference)
    found, said = targets_of(question)
    assert found == targets and source in said
