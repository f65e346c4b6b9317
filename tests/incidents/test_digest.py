"""The day's digest of notices: each notice stands in one, whatever stops in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.incidents.digest import MEMORY, Digests, Tally, plan_digests
from driftwatch.incidents.planner import Plan
from driftwatch.incidents.routing import Notices, Routes, Subscription
from driftwatch.model import Event, Incident, Transition
from driftwatch.notify.digest_text import render_digest
from driftwatch.receivers.slack_digest import digest_blocks
from driftwatch.receivers.slack_text import harmless

START = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
BOTH = Routes((Subscription("oncall"), Subscription("team", ("ticket",))))


def notice(
    name: str, at: datetime, pool: str = "rag-8b", alert: str = "LengthDrift", **fields: Any
) -> Incident:
    summary = f"{pool}: since {at:%H:%M} UTC prompts are ×2.3 longer, generations unchanged"
    return Incident(
        id=name,
        key=name,
        rule=alert,
        alert=alert,
        severity="notice",
        target={"instance": f"{name}:8000", "pool": pool},
        state="firing",
        started_at=at,
        last_true_at=at,
        firing_at=at,
        page={"event": "firing", "summary": summary, "evidence": {}},
        **fields,
    )


def plan_of(*events: tuple[Incident, Event], still: tuple[Incident, ...] = ()) -> Plan:
    transitions = tuple(Transition(one, event, one.firing_at or START) for one, event in events)
    after = {one.key: one for one, event in events if event == "firing"}
    return Plan(after | {one.key: one for one in still}, transitions, ())


def ticked(
    stored: bytes | None,
    plan: Plan,
    now: datetime,
    before: Mapping[str, Incident] | None = None,
    routes: Routes = BOTH,
) -> tuple[bytes | None, Digests]:
    digests = plan_digests(stored, plan, before or {}, routes, now)
    return digests.memory.get(MEMORY, stored), digests


def test_the_first_tick_after_the_hour_makes_one_digest_for_each_receiver() -> None:
    stored, digests = ticked(None, plan_of(), START)
    assert digests.deliveries == ()
    one, two = notice("a", START + HOUR), notice("b", START + 2 * HOUR, "chat-8b")
    stored, _ = ticked(stored, plan_of((one, "firing"), (two, "firing")), START + 2 * HOUR)
    ended = replace(one, state="resolved", resolved_at=START + 3 * HOUR)
    stored, digests = ticked(stored, plan_of((ended, "resolved"), still=(two,)), START + 3 * HOUR)
    assert digests.deliveries == ()
    due = START + timedelta(days=1, seconds=10)
    stored, digests = ticked(stored, plan_of(still=(two,)), due)
    made = [(d.kind, d.subject, d.event, d.receiver, d.reason) for d in digests.deliveries]
    assert made == [
        ("digest", "2026-11-22", "digest", "oncall", "scheduled"),
        ("digest", "2026-11-22", "digest", "team", "scheduled"),
    ]
    assert digests.deliveries[0].payload["counts"] == {"began": 2, "ended": 1, "open": 1}
    # nothing happened since: never an empty one
    stored, digests = ticked(stored, plan_of(still=(two,)), due + timedelta(days=1))
    assert digests.deliveries == ()


@pytest.mark.parametrize(
    ("notices", "held"), [("each", {}), ("off", {}), ("daily", {"silenced_by": "quiet"})]
)
def test_what_is_sent_at_once_silenced_or_not_wanted_is_in_no_digest(
    notices: Notices, held: dict[str, str]
) -> None:
    routes = Routes((Subscription("oncall", notices=notices),))
    stored, _ = ticked(None, plan_of(), START)
    one = notice("a", START + HOUR, **held)
    stored, _ = ticked(stored, plan_of((one, "firing")), START + HOUR, routes=routes)
    assert ticked(stored, plan_of(still=(one,)), START + 25 * HOUR)[1].deliveries == ()


def test_a_notice_that_was_held_back_is_in_the_digest_once_nothing_holds_it() -> None:
    stored, _ = ticked(None, plan_of(), START)
    held = notice("a", START + HOUR, silenced_by="s")
    stored, _ = ticked(stored, plan_of((held, "firing")), START + HOUR)
    free = replace(held, silenced_by=None)
    stored, _ = ticked(stored, plan_of(still=(free,)), START + 2 * HOUR, {held.key: held})
    (digest, _) = ticked(stored, plan_of(still=(free,)), START + 24 * HOUR)[1].deliveries
    assert digest.payload["counts"] == {"began": 1, "ended": 0, "open": 1}


def test_a_notice_whose_thresholds_are_a_default_is_in_no_digest() -> None:
    stored, _ = ticked(None, plan_of(), START)
    shipped = {"prompt_tokens_calibration": {"value": "shipped (uncalibrated)"}}
    one = notice("a", START + HOUR)
    one = replace(one, page={**(one.page or {}), "evidence": shipped})
    young = replace(BOTH, watched_since=START)
    stored, _ = ticked(stored, plan_of((one, "firing")), START + HOUR, routes=young)
    assert ticked(stored, plan_of(still=(one,)), START + 25 * HOUR)[1].deliveries == ()


def test_a_clock_that_is_set_back_makes_no_second_digest_of_a_day_and_loses_nothing() -> None:
    stored, _ = ticked(None, plan_of(), START)
    stored, _ = ticked(stored, plan_of((notice("a", START), "firing")), START + HOUR)
    due = START + timedelta(days=1)
    stored, digests = ticked(stored, plan_of(), due)
    assert len(digests.deliveries) == 2
    back = due - timedelta(minutes=5)
    stored, _ = ticked(stored, plan_of((notice("b", back), "firing")), back)
    stored, digests = ticked(stored, plan_of(), due + timedelta(seconds=5))
    assert digests.deliveries == ()
    _, digests = ticked(stored, plan_of(), due + timedelta(days=1))
    assert [d.payload["counts"]["began"] for d in digests.deliveries] == [1, 1]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-7_200, 40 * 3_600),  # how far the clock goes: steps back, days of downtime
            st.lists(st.sampled_from(["rag-8b", "chat-8b", "<!channel>"]), max_size=3),
        ),
        max_size=30,
    )
)
def test_each_notice_is_counted_once_whatever_the_clock_does(
    ticks: list[tuple[int, list[str]]],
) -> None:
    now, stored, happened = START, None, 0
    found: list[tuple[str, int]] = []
    # a month later the clock stands still for ever: what is left comes out
    for seconds, pools in [*ticks, (31 * 86_400, []), (86_400, []), (86_400, [])]:
        now += timedelta(seconds=seconds)
        fired = [notice(f"n{happened + i}", now, pool) for i, pool in enumerate(pools)]
        happened += len(fired)
        stored, digests = ticked(stored, plan_of(*((one, "firing") for one in fired)), now)
        mine = [d for d in digests.deliveries if d.receiver == "oncall"]
        found += [(d.subject, d.payload["counts"]["began"]) for d in mine]
        assert all(d.payload["counts"]["began"] + d.payload["counts"]["ended"] for d in mine)
    assert sum(began for _, began in found) == happened
    assert len({day for day, _ in found}) == len(found)


def test_what_the_store_remembers_is_bounded_by_pools_and_rules_not_by_notices() -> None:
    sizes = []
    for number in (100, 1_000):
        fired = [notice(f"n{i}", START, f"pool-{i % 5}") for i in range(number)]
        stored, _ = ticked(None, plan_of(*((one, "firing") for one in fired)), START)
        assert stored is not None
        sizes.append(len(stored))
    assert sizes[1] < 1.02 * sizes[0]
    assert Tally.from_bytes(stored, START).as_bytes() == stored


def sample(pools: int = 2) -> dict[str, Any]:
    stored, _ = ticked(None, plan_of(), START)
    for i in range(pools):
        pool = "rag-8b" if i == 0 else f"chat-{i}"
        fired = [notice(f"{pool}-{j}", START + (i + j) * HOUR, pool) for j in range(3)]
        stored, _ = ticked(stored, plan_of(*((one, "firing") for one in fired)), START + 5 * HOUR)
        over = replace(fired[0], state="resolved", resolved_at=START + 6 * HOUR)
        stored, _ = ticked(stored, plan_of((over, "resolved")), START + 6 * HOUR)
    still = notice("rag-8b-1", START + HOUR)
    digests = ticked(stored, plan_of(still=(still,)), START + 24 * HOUR)[1]
    return dict(digests.deliveries[0].payload)


def test_the_texts_of_a_digest(golden: Callable[[str, str], None]) -> None:
    digest = sample()
    golden("notify/digest.txt", render_digest(digest) + "\n")
    golden("notify/digest.json", json.dumps(digest, indent=1, ensure_ascii=False) + "\n")
    slack = json.dumps(digest_blocks(digest, harmless), indent=1, ensure_ascii=False)
    golden("notify/digest.slack.json", slack + "\n")


def test_a_digest_fits_on_a_screen_and_in_a_slack_section() -> None:
    digest = sample(pools=60)
    text = render_digest(digest)
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 80
    assert "in 53 pools" in text
    assert all(len(str(b)) < 3_200 for b in digest_blocks(digest, harmless)["blocks"])


def test_text_from_outside_is_escaped() -> None:
    stored, _ = ticked(None, plan_of(), START)
    fired = notice("a", START, pool="<!channel>\n<b>*x*</b>")
    stored, _ = ticked(stored, plan_of((fired, "firing")), START)
    digest = dict(ticked(stored, plan_of(), START + 24 * HOUR)[1].deliveries[0].payload)
    slack = json.dumps(digest_blocks(digest, harmless))
    assert "<!channel>" not in slack
    assert "*x*" not in slack
    assert "\n<b>" not in render_digest(digest)


def test_ten_thousand_notices_of_a_tick_are_one_digest() -> None:
    stored, _ = ticked(None, plan_of(), START)
    fired = [notice(f"n{i}", START, f"pool-{i % 500}") for i in range(10_000)]
    stored, _ = ticked(stored, plan_of(*((one, "firing") for one in fired)), START)
    _, digests = ticked(stored, plan_of(), START + 24 * HOUR)
    assert [d.payload["counts"]["began"] for d in digests.deliveries] == [10_000, 10_000]
    assert len(render_digest(digests.deliveries[0].payload).splitlines()) <= 24
