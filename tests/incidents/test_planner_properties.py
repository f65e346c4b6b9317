"""Whatever happens, and wherever the process is stopped in between."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import HOUR, NOW, Pager, firing, silence

from driftwatch.incidents.planner import PlannedDelivery
from driftwatch.incidents.silence import silenced_by

STEP = 0.25  # hours
# asks for something: never sent while it is quiet
ASKS = {"first", "silence ended", "repeat"}
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["wait", "wait", "wait", "fire", "resolve", "ack", "unack", "silence", "down", "up"]
        ),
        st.integers(1, 12),
    ),
    max_size=30,
)


def play(
    events: list[tuple[str, int]], restart_at: int | None = None
) -> list[tuple[float, Pager, list[PlannedDelivery]]]:
    """Each step's time, the state after it, and what it planned."""
    pager = Pager()
    steps = []
    for number, (event, size) in enumerate(events):
        hours = number * STEP
        if number == restart_at:
            # a new process has what is stored and nothing else
            pager = replace(pager, incidents=dict(pager.incidents), outbox=list(pager.outbox))
        open_now = next(iter(pager.incidents.values()), None)
        done: list[PlannedDelivery] = []
        if event == "fire" and open_now is None:
            done += pager.fire(hours, "0123456789abcdef"[number % 16]).deliveries
        elif event == "resolve" and open_now is not None:
            done += pager.resolve(hours, open_now.id[0]).deliveries
        elif event == "ack" and open_now is not None:
            pager.act("acknowledge", hours)
        elif event == "unack" and open_now is not None and open_now.acknowledged_at is not None:
            pager.act("unacknowledge", hours)
        elif event == "silence":
            pager.silences.append(silence(id_=f"s{number}", hours=size * STEP, after_hours=hours))
        elif event in ("down", "up"):
            (pager.pending.add if event == "down" else pager.pending.discard)("oncall")
        done += pager.tick(hours).deliveries
        snapshot = replace(
            pager,
            incidents=dict(pager.incidents),
            silences=list(pager.silences),
            outbox=list(pager.outbox),
        )
        steps.append((hours, snapshot, done))
    return steps


@given(EVENTS)
@settings(max_examples=100, deadline=None)
def test_what_is_sent_is_sent_in_order_and_never_into_silence(
    events: list[tuple[str, int]],
) -> None:
    paged: set[tuple[str, str]] = set()
    resolved: set[str] = set()
    for hours, pager, done in play(events):
        at = NOW + hours * HOUR
        one = firing()
        quiet = silenced_by(one, pager.silences, at)
        for delivery in done:
            if delivery.kind == "silence":
                continue
            key = (delivery.subject, delivery.receiver)
            assert delivery.subject not in resolved
            if delivery.event == "firing":
                paged.add(key)
            assert key in paged, "told of something that it never got"
            assert not (quiet and delivery.reason in ASKS)
        resolved |= {d.subject for d in done if d.event == "resolved"}
        for incident in pager.incidents.values():
            if not quiet and incident.acknowledged_at is None:
                assert (incident.id, "oncall") in paged, "fires, and nobody was paged"


@given(EVENTS, st.integers(0, 29))
@settings(max_examples=60, deadline=None)
def test_a_restart_at_any_point_changes_nothing(events: list[tuple[str, int]], at: int) -> None:
    assert [done for _, _, done in play(events)] == [done for _, _, done in play(events, at)]


@given(EVENTS)
@settings(max_examples=30, deadline=None)
def test_planning_twice_at_the_same_time_plans_nothing_new(events: list[tuple[str, int]]) -> None:
    for hours, pager, _ in play(events)[-1:]:
        assert pager.tick(hours).deliveries == ()
