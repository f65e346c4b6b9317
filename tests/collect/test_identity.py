"""Which servers there are and what they are called, over made listings."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driftwatch.collect.identity import Identity, doubles, names, successors

VALUES = st.sampled_from(["a", "b", "vllm-0:metrics", "10.0.0.1:8000"])
LABELS = ("instance", "job", "namespace", "pod", "cluster", "ReplicaId", "exported_instance")


@st.composite
def servers(draw: st.DrawFn) -> Identity:
    """Label sets of which many share an instance; any label may be missing."""
    chosen = draw(st.dictionaries(st.sampled_from(LABELS), VALUES, min_size=1))
    return tuple(sorted(chosen.items()))


LISTINGS = st.lists(st.lists(servers(), max_size=12), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(LISTINGS)
def test_no_two_have_one_name_nobody_is_lost_and_names_stay(listings: list[list[Identity]]) -> None:
    before: Mapping[Identity, str] = {}
    for listed in listings:
        given_names = names(listed, before)
        assert given_names.keys() == set(listed)
        assert len(set(given_names.values())) == len(given_names)
        assert all(given_names.values())
        for one in given_names.keys() & before.keys():
            assert given_names[one] == before[one]
        assert names(reversed(listed), before) == given_names
        before = given_names


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(servers(), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8),
    st.booleans(),
)
def test_who_is_read_in_place_of_another_is_read_itself(
    found: dict[Identity, tuple[int, int]], alike: bool
) -> None:
    spans = {one: (first, first + length) for one, (first, length) in found.items()}
    started = dict.fromkeys(spans, 7)
    twice = doubles(spans, started, {}, lambda one, other: alike)
    assert not set(twice.values()) & twice.keys()
    later = successors({one: span for one, span in spans.items() if one not in twice})
    assert not set(later.values()) & later.keys()
    for old, new in later.items():
        assert spans[old][1] < spans[new][0]
        assert dict(old).get("instance") == dict(new).get("instance")


def of(**labels: str) -> Identity:
    return tuple(sorted(labels.items()))


def test_two_that_cannot_be_one_process() -> None:
    """Started by one rollout in the same moment, with the same counts."""
    one, other = of(instance="a:1", pod="x"), of(instance="b:1", pod="y")
    spans, started = {one: (0, 9), other: (1, 9)}, {one: 7.25, other: 7.25}
    assert doubles(spans, started, {}, lambda a, b: True) == {}
    service = of(instance="svc:1")
    spans, started = {one: (0, 9), service: (1, 9)}, {one: 7.25, service: 7.25}
    assert doubles(spans, started, {}, lambda a, b: True) == {service: one}
    assert doubles(spans, started, {}, lambda a, b: False) == {}
