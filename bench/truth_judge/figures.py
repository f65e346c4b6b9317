"""The figures of pages and detection: rates, shares, delays, the matrix of leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from truth_judge.bootstrap import ratio, statistic
from truth_judge.facts import Block, Stretch
from truth_judge.matching import (
    Alarm,
    Detection,
    alarms,
    detections,
    quiet_months,
)

GOAL_EPISODES = 240
GOAL_SERVER_MONTHS = 120.0
TOLD = ("page", "ticket", "notice")
SOON_MINUTES = (5, 10, 15)
NO_VERDICT = "no verdict"
UNDETERMINED = "undetermined"


def false_alarms(stretches: Sequence[Stretch], *, seed: int) -> dict[str, Any]:
    """False findings per server-month, by severity and by rule."""
    months = quiet_months(stretches)
    judged = [a for a in alarms(stretches) if a.verdict == "false"]
    rules = sorted({(a.finding.severity, a.finding.rule) for a in judged})
    return {
        "server_months": sum(months.values()),
        "goal_server_months": GOAL_SERVER_MONTHS,
        "blocks": len(months),
        "by_severity": {s: _rate(judged, months, seed, severity=s) for s in TOLD},
        "by_rule": {
            f"{rule} ({severity})": _rate(judged, months, seed, severity=severity, rule=rule)
            for severity, rule in rules
        },
    }


def _rate(
    judged: Iterable[Alarm],
    months: Mapping[Block, float],
    seed: int,
    *,
    severity: str,
    rule: str | None = None,
) -> dict[str, Any]:
    counts: Counter[Block] = Counter(
        a.stretch.block(a.finding.at_seconds)
        for a in judged
        if a.finding.severity == severity and rule in (None, a.finding.rule)
    )
    # a page in a stretch's last minute may lie in a block of no time of its own
    held = {**dict.fromkeys(counts, 0.0), **months}
    return {"count": counts.total()} | ratio(counts, held, seed=seed).as_json()


def detection(stretches: Sequence[Stretch], *, seed: int) -> dict[str, Any]:
    """Share found and delay of every cell (kind and size).

    Sizes of which nobody must be told are there too, where a larger one of their kind must: the
    share that was told all the same is how the detector's power grows with the effect.
    """
    cells: defaultdict[str, list[Detection]] = defaultdict(list)
    for one in detections(stretches):
        cells[one.episode.cell].append(one)
    return {cell: _cell(cells[cell], seed) for cell in sorted(cells, key=_by_size)}


def _by_size(cell: str) -> tuple[str, float]:
    kind, _, size = cell.rpartition(" ")
    try:
        return kind, float(size)
    except ValueError:
        return cell, 0.0


def _cell(found: Sequence[Detection], seed: int) -> dict[str, Any]:
    of: Counter[Block] = Counter(d.block for d in found)
    hit: Counter[Block] = Counter(d.block for d in found if d.delay_seconds is not None)
    delays: defaultdict[Block, list[float]] = defaultdict(list)
    for one in found:
        if one.delay_seconds is not None:
            delays[one.block].append(one.delay_seconds)
    soon = {
        f"within_{minutes}min_ratio": ratio(
            Counter(
                d.block
                for d in found
                if d.delay_seconds is not None and d.delay_seconds <= 60.0 * minutes
            ),
            of,
            seed=seed,
            share=True,
        ).as_json()
        for minutes in SOON_MINUTES
    }
    once = Counter(d.block for d in found if d.told == 1)
    return {
        "episodes": len(found),
        "goal_episodes": GOAL_EPISODES,
        "expected": sorted({f"{r} ({s})" for d in found for s, r in d.episode.asked}),
        "found": hit.total(),
        "found_ratio": ratio(hit, of, seed=seed, share=True).as_json(),
        "delay_median_seconds": statistic(delays, _median, seed=seed).as_json(),
        "delay_p95_seconds": statistic(delays, _p95, seed=seed).as_json(),
        **soon,
        "told_once_ratio": ratio(once, hit, seed=seed, share=True).as_json(),
        "loss_error": _loss_error(found, seed),
    }


def _loss_error(found: Sequence[Detection], seed: int) -> dict[str, Any] | None:
    """Estimated less injected loss of speed, where pages tell one; in shares of the speed."""
    errors: defaultdict[Block, list[float]] = defaultdict(list)
    for one in found:
        said = None if one.finding is None else one.finding.speed_ratio
        if said is not None and one.episode.size is not None and one.episode.size < 1:
            errors[one.block].append(1 - said - one.episode.size)
    if not errors:
        return None
    return {
        "median": statistic(errors, _median, seed=seed).as_json(),
        "p95_absolute": statistic(errors, lambda e: _p95(np.abs(e)), seed=seed).as_json(),
    }


def _median(values: Any) -> float:
    return float(np.median(values))


def _p95(values: Any) -> float:
    return float(np.quantile(values, 0.95))


def unexpected(stretches: Iterable[Stretch]) -> dict[str, int]:
    """What fired inside an episode's window under a rule that it does not expect, by kind."""
    found: Counter[str] = Counter(
        f"{a.finding.rule} ({a.finding.severity})"
        for a in alarms(stretches)
        if a.verdict == "unexpected"
    )
    return dict(sorted(found.items()))


class Verdict(NamedTuple):
    """Where a diagnosis should end and where it did; the block it is drawn again with."""

    true: str
    said: str
    block: Block


def confusion(verdicts: Iterable[Verdict], *, seed: int) -> dict[str, Any]:
    """A matrix of true and said leaves; *undetermined* and no verdict are said, never true.

    ``right_ratio`` is over all verdicts, ``right_when_said_ratio`` over those with a leaf;
    ``right`` and ``wrong``, a leaf that is not the true one, are over all, with intervals.
    """
    told = list(verdicts)
    counted = Counter((one.true, one.said) for one in told)
    rows = sorted({true for true, _ in counted})
    silent = (UNDETERMINED, NO_VERDICT)
    columns = [*sorted({said for _, said in counted} - set(silent)), *silent]
    total = counted.total()
    right = sum(n for (true, said), n in counted.items() if true == said)
    said = sum(n for (_, said), n in counted.items() if said not in silent)

    def over(which: Callable[[Verdict], bool]) -> dict[str, Any]:
        of, chosen = Counter(one.block for one in told), Counter(o.block for o in told if which(o))
        return ratio(dict(chosen), dict(of), seed=seed, share=True).as_json()

    return {
        "leaves": columns,
        "matrix": {true: {s: counted[true, s] for s in columns} for true in rows},
        "episodes": total,
        "right_ratio": right / total if total else None,
        "right_when_said_ratio": right / said if said else None,
        "undetermined_ratio": (total - said) / total if total else None,
        "right": over(lambda one: one.said == one.true),
        "wrong": over(lambda one: one.said not in (one.true, *silent)),
    }
