"""What holds for every history of verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from life_cycle_steps import advance

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.life_cycle import Observation, RuleTiming, identity

START = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("a", "b", "c")

repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=50)

seconds = st.sampled_from([0.0, 59.0, 60.0, 120.0, 300.0])
timings = st.fixed_dictionaries({name: st.tuples(seconds, seconds) for name in NAMES})
# per minute: name → verdict; a name that is not there was not evaluated
minutes = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([True, False, None]))
histories = st.lists(minutes, max_size=40)

Timings = dict[str, tuple[float, float]]
History = list[dict[str, bool | None]]


def play(
    history: History, timing: Timings, state: dict[str, Incident], first: int = 0
) -> tuple[dict[str, Incident], list[Transition], list[dict[str, Incident]]]:
    happened: list[Transition] = []
    states = []
    for number, verdicts in enumerate(history, start=first):
        seen = []
        for name, verdict in verdicts.items():
            rule = RuleTiming(name, name, "page", *timing[name])
            target = {"instance": "host:8000"}
            seen.append(Observation(identity(name, target), rule, target, verdict))
        state, transitions = advance(state, START + timedelta(minutes=number + 1), seen)
        happened += transitions
        states.append(state)
    return state, happened, states


@repeatable
@given(histories, timings)
def test_never_two_open_per_key_and_ids_are_never_reused(history: History, timing: Timings) -> None:
    _, happened, states = play(history, timing, {})
    for state in states:
        assert all(key == incident.key for key, incident in state.items())
        assert all(incident.state in ("pending", "firing") for incident in state.values())
    # for each key: firing, resolved, firing, resolved ... of one incident after the other
    for name in NAMES:
        mine = [t for t in happened if t.incident.rule == name]
        assert [t.event for t in mine] == (["firing", "resolved"] * len(mine))[: len(mine)]
        ids = [t.incident.id for t in mine]
        assert ids[1::2] == ids[0 : len(ids) - len(ids) % 2 : 2]
        assert len(set(ids)) == (len(ids) + 1) // 2


@repeatable
@given(histories, timings)
def test_resolved_implies_fired_and_times_are_in_order(history: History, timing: Timings) -> None:
    _, happened, _ = play(history, timing, {})
    for transition in happened:
        incident = transition.incident
        assert incident.firing_at is not None
        assert incident.started_at < incident.firing_at
        if transition.event == "resolved":
            assert incident.resolved_at == transition.at > incident.last_true_at
            assert incident.resolved_at > incident.firing_at
        else:
            assert incident.resolved_at is None
            assert incident.firing_at == incident.last_true_at == transition.at


@repeatable
@given(histories, timings)
def test_no_transition_without_a_change_of_state_and_none_missed(
    history: History, timing: Timings
) -> None:
    before: dict[str, Incident] = {}
    for number, verdicts in enumerate(history):
        after, happened, _ = play([verdicts], timing, before, number)
        fired = {
            i.id
            for i in after.values()
            if i.state == "firing" and (i.key not in before or before[i.key].state != "firing")
        }
        resolved = {i.id for i in before.values() if i.state == "firing" and i.key not in after}
        assert {t.incident.id for t in happened if t.event == "firing"} == fired
        assert {t.incident.id for t in happened if t.event == "resolved"} == resolved
        assert [t.incident.key for t in happened] == sorted(t.incident.key for t in happened)
        before = after


@repeatable
@given(histories, timings, st.data())
def test_splitting_the_minutes_into_batches_changes_nothing(
    history: History, timing: Timings, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    whole = play(history, timing, {})
    first, early, _ = play(history[:cut], timing, {})
    second, late, _ = play(history[cut:], timing, first, cut)
    assert (second, early + late) == whole[:2]


@repeatable
@given(histories, timings)
def test_what_fires_was_seen_true_for_long_enough(history: History, timing: Timings) -> None:
    _, happened, _ = play(history, timing, {})
    for transition in happened:
        rule = transition.incident.rule
        end = int((transition.at - START) / timedelta(minutes=1))
        begin = int((transition.incident.started_at - START) / timedelta(minutes=1))
        seen = [minute[rule] for minute in history[begin:end] if rule in minute]
        if transition.event == "firing":
            assert False not in seen
            assert seen.count(True) * 60 >= max(timing[rule][0], 60)
        else:
            since_true = seen[len(seen) - seen[::-1].index(True) :]
            assert since_true.count(False) * 60 >= max(timing[rule][1], 60)


@repeatable
@given(histories, timings)
def test_unknown_minutes_change_nothing_at_all(history: History, timing: Timings) -> None:
    state, _, _ = play(history, timing, {})
    unknown: History = [dict.fromkeys(NAMES, None) for _ in range(3)]
    after, happened, _ = play(unknown, timing, state, len(history))
    assert (after, happened) == (state, [])


labels = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3)


@repeatable
@given(st.text(max_size=4), labels, st.text(max_size=4), labels)
def test_identities_differ_where_rule_or_labels_differ(
    rule: str, target: dict[str, str], other_rule: str, other: dict[str, str]
) -> None:
    same = (rule, target) == (other_rule, other)
    assert (identity(rule, target) == identity(other_rule, other)) is same
