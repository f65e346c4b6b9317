"""What an UPDATE says first: what is otherwise, and how old the rest is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from made_incidents import with_values
from page_cases import AT, CAP, CASES

from driftwatch.incidents.follow_up import follow_up, sent_page
from driftwatch.incidents.incident import LastMessage
from driftwatch.incidents.planner import MessageAbout
from driftwatch.model import Advice, KnobMove, Reason
from driftwatch.notify.advice import advice_lines, imperatives
from driftwatch.notify.headline import headline
from driftwatch.notify.page import Acknowledgement
from driftwatch.pipeline.news import advice_news, cause_changed, is_weaker, what_changed

LATER = AT + timedelta(minutes=5)
REPLICAS = ("+3 replicas: forecast 97 % in target",)


def test_an_update_says_first_what_changed_and_of_when_the_problem_is() -> None:
    """It said 43 % ten minutes later, when nearly all missed their target."""
    page = CAP.page()
    made = page.times.evaluated_at
    sent = follow_up(page, "updated", made + timedelta(minutes=10), "advice now: other")
    problem = "first token takes 1.7 s, 97 % of it queueing"
    assert sent.summary == f"UPDATE host:8000: advice now: other; {problem}"
    assert (sent.lines[0].label, sent.lines[0].at) == ("Measured", made)
    assert [one.text for one in sent.lines if one.label == "Cause"] == [page.phrases.cause]


def test_a_full_limit_page_says_who_gives_up_what_arrives_and_the_replica_it_takes() -> None:
    """It said that 99 % miss, that requests grew ×1.8, and nothing of the clients that gave up."""
    finding = CASES["batch_drift"].finding
    assert finding.advice is not None
    lost = {"given_up_10m_low_ratio": 0.324, "given_up_requests_10m": 24_000.0}
    rates = {"requests_per_second": 12.0, "requests_per_second_ratio": 2.0}
    evidence = {**finding.evidence, **lost, **rates, "observed_10m_seconds": 600.0}
    instead = ("add 1 replica (9 in all): forecast 98 % of requests in target",)
    advice = finding.advice.model_copy(update={"instead": instead})
    # 24,000 of 8 servers in 600 s: 5 a second; or what the advice counted in the same minutes
    counted = {"offered_requests_per_second": 21.0, "at": AT}
    for more, grew in (({}, "×2.8"), (counted, "×3.5")):
        answered = advice.model_copy(update=more)
        case = replace(finding, evidence=evidence, advice=answered)
        page = replace(CASES["batch_drift"], finding=case).page()
        assert "8 of 8: over 32 % of clients give up" in page.summary
        assert page.summary.endswith(" Add 1 replica and set max_num_batched_tokens 512 → 2048")
        do = "add 1 replica (9 in all) and set max_num_batched_tokens 512 → 2048: forecast 98 % of "
        assert f"{do}requests in target" in [one.text for one in page.lines]
        assert f"requests grew {grew}" in page.phrases.since
    usual = {**evidence, "reference_given_up_ratio": 0.2, "requests_per_second_ratio": 0.1}
    page = replace(CASES["batch_drift"], finding=replace(finding, evidence=usual)).page()
    assert "give up" not in page.summary and "requests fell" not in page.phrases.since
    unknown = {**evidence, "given_up_requests_10m": 0.0}
    beside = {
        "also_missing": {"rag-8b-9:8000": 0.42},
        "lengths_moved_at": {"prompt": AT - timedelta(hours=3)},
    }
    case = replace(finding, evidence=unknown, **beside)
    page = replace(CASES["batch_drift"], finding=case).page()
    assert "requests grew" not in page.phrases.since  # how many arrive is unknown
    assert "prompts grew ×2.3 at " in page.phrases.since
    also = "rag-8b-9:8000 misses a latency target too (42 % of requests)"
    assert page.phrases.also == (also,)


def test_an_older_forecast_says_when_it_was_computed() -> None:
    for name, minutes, label, words in (
        ("no_knob", 60, "Forecast", "of 01:56 UTC: 98 % of requests start within 1 s"),
        ("no_knob", 0, "Forecast", "98 % of requests start within 1 s"),
        ("budget", 60, "Change", "restart with --max-num-batched-tokens=2048. Forecast of 01:56 U"),
    ):
        page = CASES[name].page()
        assert page.advice is not None
        advice = page.advice.model_copy(update={"at": AT - timedelta(minutes=minutes)})
        lines = advice_lines(page.model_copy(update={"advice": advice}))
        assert next(one.text for one in lines if one.label == label).startswith(words)


def test_slower_since_a_restart_asks_to_roll_back() -> None:
    page = CASES["drain"].page()
    assert page.diagnosis is not None
    leaf = replace(page.diagnosis, leaf="scheduler_regression", advice="Look for what changed")
    page = page.model_copy(update={"diagnosis": leaf})
    assert imperatives(page)[0] == "Look for what changed"
    after = page.model_copy(update={"recent_change": "after a change: restarted 02:40 UTC"})
    assert imperatives(after)[0] == "Roll one server back and compare"


def test_the_page_of_a_slow_engine_names_the_limit_once_its_clock_is_back() -> None:
    """It said "slower at equal load: -10 %" for hours, and not what to set."""
    case, now = CASES["drain"], {"gpu_sm_clock_ratio": 1.0, "slo_missed": True}
    speeds = {"slower_at_equal_load": False, "slower_than_pool": False}
    finding = replace(case.finding, evidence={**case.finding.evidence, **now, **speeds})
    page = replace(case, finding=finding).page()
    assert "slower" not in page.phrases.problem[0] and "replicas" not in page.phrases.since
    assert cause_changed("gpu_throttled ", "concurrency_cap_binding max_num_seqs", page) == (
        "the clock is back; max_num_seqs is full now"
    )


def test_a_measured_answer_after_a_replayed_one_is_not_the_same_advice() -> None:
    """Line 1 had changed from "No knob helps: +2 replicas" to "add replicas"."""
    replayed = Advice(
        action="none",
        reason=Reason("other", "it completes 2.5"),
        instead=REPLICAS,
        basis="simulation",
    )
    measured = replayed.model_copy(update={"basis": "measured"})
    assert what_changed(replayed, measured) is None
    assert is_weaker(replayed, measured)
    change = Advice(
        action="change",
        reason=Reason("other", "best"),
        moves=(KnobMove("max_num_seqs", 8.0, 40.0, "inferred"),),
    )
    assert not is_weaker(replayed, change)
    more, most = (change.model_copy(update={"instead": REPLICAS, "replicas": n}) for n in (2, 3))
    assert is_weaker(most, more) and is_weaker(more, change) and not is_weaker(more, most)
    assert (what_changed(change, most) or "").startswith("advice now: +3 replicas and set max_")
    engine, leaf = (
        replayed.model_copy(update={"reason": Reason(o, "")}) for o in ("engine", "leaf")
    )
    assert is_weaker(leaf, engine)
    assert (what_changed(None, change) or "").startswith("advice now: set max_num_seqs 8 → 40, ")
    four, three = (replayed.model_copy(update={"replicas": n}) for n in (4, 3))
    assert is_weaker(four, three) and not is_weaker(three, four)
    # the next message has the smaller number, and none is sent for it, nor for the old one again
    page, said = CAP.page(), LastMessage(at=AT, servers=1, replicas=4)
    for before, now, news in ((four, three, ""), (three, four, ""), (None, four, "advice now: ")):
        old, answer = page.model_copy(update={"advice": before}), replace(CAP.finding, advice=now)
        assert str(advice_news(old, answer, said))[:12] == news


def test_an_update_of_an_acknowledged_incident() -> None:
    page = follow_up(CAP.page(), "updated", LATER, "4 of 8 servers, before: host:8000")
    ana = Acknowledgement(by="ana", at=AT, comment="on it")
    incident = with_values(CAP.incident, page=page, acknowledgement=ana)
    told = sent_page(incident, MessageAbout("updated", LATER))
    assert told.summary.startswith("ACKNOWLEDGED by ana 02:56 UTC · host:8000: ")
    assert told.summary == headline(told)
    assert told.acknowledgement.by == "ana"
    free = sent_page(
        with_values(incident, acknowledgement=None),
        MessageAbout("updated", LATER),
    )
    assert free.summary.startswith("UPDATE host:8000: ")


def test_a_queue_stands_in_a_message_only_while_it_is_long() -> None:
    """A later message said that 5,974 requests wait where 21 did."""
    finding = CASES["batch_drift"].finding
    assert finding.advice is not None
    advice = finding.advice.model_copy(update={"queue": "5,974 requests wait on a:8000"})
    for wait, is_long in ((None, True), (1200.0, True), (3.0, False)):
        evidence = {**finding.evidence, "queue_wait_estimate_10m_seconds": wait}
        case = replace(finding, evidence=evidence, advice=advice)
        page = replace(CASES["batch_drift"], finding=case).page()
        assert ("Queue" in [line.label for line in advice_lines(page)]) == is_long
