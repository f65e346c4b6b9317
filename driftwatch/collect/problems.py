"""Problems of sources, told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from driftwatch.collect.schema import SourceProblem


def folded(problems: Iterable[SourceProblem]) -> tuple[SourceProblem, ...]:
    """The same problem of the same place once, at its first time, with how often it was met."""
    times: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], SourceProblem] = {}
    for problem in problems:
        key = (problem.where, problem.reason)
        times[key] += 1
        earlier = first.get(key)
        if earlier is None or (problem.time and earlier.time and problem.time < earlier.time):
            first[key] = problem
    counted = [
        replace(p, reason=f"{p.reason} ({times[key]} times)") if times[key] > 1 else p
        for key, p in first.items()
    ]
    return tuple(sorted(counted, key=lambda p: (p.where, str(p.time or ""), p.reason)))
