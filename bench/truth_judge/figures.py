"""The figures of pages and detection: rates, shares, delays, the matrix of leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from truth_judge.bootstrap import ratio, statistic
from truth_judge.facts import Block, Stretch
from truth_judge.matching import Alarm, Detection, alarms, detections, quiet_months

GOAL_EPISODES = 240
GOAL_SERVER_MONTHS = 120.0
TOLD = ("page", "ticket", "notice")
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
    return {
        "episodes": len(found),
        "goal_episodes": GOAL_EPISODES,
        "expected": sorted({f"{r} ({s})" for d in found for s, r in d.episode.asked}),
        "found": hit.total(),
        "found_ratio": ratio(hit, of, seed=seed, share=True).as_json(),
        "delay_median_seconds": statistic(delays, _median, seed=seed).as_json(),
        "delay_p95_seconds": statistic(delays, _p95, seed=seed).as_json(),
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


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """(true leaf, said leaf) pairs → a matrix; *undetermined* and no verdict are said, never true.

    ``right_ratio`` is over all pairs, ``right_when_said_ratio`` over those with a leaf.
    """
    counted = Counter(pairs)
    rows = sorted({true for true, _ in counted})
    silent = (UNDETERMINED, NO_VERDICT)
    columns = [*sorted({said for _, said in counted} - set(silent)), *silent]
    total = counted.total()
    right = sum(n for (true, said), n in counted.items() if true == said)
    said = sum(n for (_, said), n in counted.items() if said not in silent)
    return {
        "leaves": columns,
        "matrix": {true: {s: counted[true, s] for s in columns} for true in rows},
        "episodes": total,
        "right_ratio": right / total if total else None,
        "right_when_said_ratio": right / said if said else None,
        "undetermined_ratio": (total - said) / total if total else None,
    }
