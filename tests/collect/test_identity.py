"""Which servers there are and what they are called, over made listings."""

from __future__ import annotations

from driftwatch.collect.identity import Identity, doubles


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
