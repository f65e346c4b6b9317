"""The figures that the project is held to, each with its goal and its interval.

Counted over the mixed fleets; intervals by drawing whole days of a pool again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from truth_judge.bootstrap import ratio, statistic
from truth_judge.facts import Block, Stretch
from truth_judge.figures import NO_VERDICT, UNDETERMINED, Verdict
from truth_judge.matching import Detection, alarms, detections, quiet_months
from truth_judge.running import Ran, paged
from truth_judge.whatif import PAGES, RECOMMEND, gain_of, summary

QUIET, FAULTS, LIMITS = "mixed-quiet", "mixed-faults", "mixed-limits"
FLEETS = (QUIET, FAULTS, LIMITS)
LOSSES = (0.15, 0.2, 0.3)
_SILENT = (UNDETERMINED, NO_VERDICT)


def goals(ran: Sequence[Ran], *, seed: int) -> list[dict[str, Any]]:
    """Rows of the table: figure, goal, how many, estimate and unit."""
    mixed = [one for one in ran if one.stretch.name in FLEETS]
    if not mixed:
        return []
    stretches = [one.stretch for one in mixed]
    advised = summary([gain_of(g) for one in mixed for g in one.gains], seed=seed)
    rows = [
        *_page_rows(stretches, seed),
        *_leaf_rows("explain", [v for one in mixed for v in one.explained], seed),
        *(row for who in (RECOMMEND, PAGES) for row in _advice_rows(who, advised)),
    ]
    names = dict.fromkeys(name for one in mixed for name in one.beside)
    beside = {
        name: {r["figure"]: r for r in _page_rows([o.beside[name] for o in mixed], seed)}
        for name in names
    }
    return [
        {**row, "beside": {name: of.get(row["figure"]) for name, of in beside.items()}}
        for row in rows
    ]


def _page_rows(stretches: Sequence[Stretch], seed: int) -> list[dict[str, Any]]:
    """What can be said of whoever pages."""
    found = [d for d in detections(stretches) if d.episode.pages]
    return [
        *_false_rows(stretches, seed),
        _share("pages that had to come, found", "≥ 98 %", found, seed),
        *_loss_rows(found, seed),
        *_leaf_rows("pages", [v for one in stretches for v in paged(one)], seed),
    ]


def _false_rows(stretches: Sequence[Stretch], seed: int) -> Iterable[dict[str, Any]]:
    months = quiet_months(stretches)
    judged = [a for a in alarms(stretches) if a.verdict == "false"]
    named: list[tuple[str, str, Sequence[Stretch]]] = [
        ("false pages per quiet server-month", "≤ 0.1, upper ≤ 0.5", stretches)
    ]
    named += [
        (f"… {name}", "", [s for s in stretches if s.name == name])
        for name in FLEETS
        if any(s.name == name for s in stretches)
    ]
    for figure, goal, which in named:
        yield _rate(figure, goal, which, "page", None, seed)
    pages = Counter(a.finding.rule for a in judged if a.finding.severity == "page")
    for rule, _ in pages.most_common():
        yield _rate(f"… {rule}", "", stretches, "page", rule, seed)
    yield _rate("false tickets per server-month", "≤ 0.1", stretches, "ticket", None, seed)
    yield _rate("false notices per server-month", "≤ 0.5", stretches, "notice", None, seed)
    notices = Counter(a.finding.rule for a in judged if a.finding.severity == "notice")
    for rule, _ in notices.most_common():
        yield _rate(f"… {rule}", "", stretches, "notice", rule, seed)
    yield {"figure": "quiet server-months", "goal": "", "count": None, "unit": "",
           "estimate": {"value": sum(months.values()), "low": None, "high": None,
                        "blocks": len(months), "note": "how long was listened"}}  # fmt: skip


def _rate(
    figure: str, goal: str, stretches: Sequence[Stretch], severity: str, rule: str | None, seed: int
) -> dict[str, Any]:
    months = quiet_months(stretches)
    counts: Counter[Block] = Counter(
        a.stretch.block(a.finding.at_seconds)
        for a in alarms(stretches)
        if a.verdict == "false"
        and a.finding.severity == severity
        and rule in (None, a.finding.rule)
    )
    held = {**dict.fromkeys(counts, 0.0), **months}
    return _row(figure, goal, counts.total(), ratio(counts, held, seed=seed).as_json())


def _row(
    figure: str, goal: str, count: int | None, estimate: dict[str, Any], unit: str = ""
) -> dict[str, Any]:
    return {"figure": figure, "goal": goal, "count": count, "estimate": estimate, "unit": unit}


def _share(figure: str, goal: str, found: Sequence[Detection], seed: int) -> dict[str, Any]:
    of = Counter(d.block for d in found)
    hit = Counter(d.block for d in found if d.delay_seconds is not None)
    return _row(figure, goal, of.total(), ratio(hit, of, seed=seed, share=True).as_json(), "%")


def _loss_rows(found: Sequence[Detection], seed: int) -> Iterable[dict[str, Any]]:
    for size, goal in zip(LOSSES, ("≥ 96 %", "≥ 99 %", "100 %"), strict=True):
        own = [d for d in found if d.episode.kind == "loss" and d.episode.size == size]
        yield _share(f"{100 * size:g} % slower, found", goal, own, seed)
        delays: dict[Block, list[float]] = {}
        for one in own:
            if one.delay_seconds is not None:
                delays.setdefault(one.block, []).append(one.delay_seconds)
        median = statistic(delays, lambda v: float(np.median(v)), seed=seed).as_json()
        yield _row("… median delay", "", sum(map(len, delays.values())), median, "min")
    for kind in sorted({d.episode.kind for d in found} - {"loss"}):
        yield _share(f"{kind}, found", "", [d for d in found if d.episode.kind == kind], seed)


def _leaf_rows(who: str, told: Sequence[Verdict], seed: int) -> Iterable[dict[str, Any]]:
    def over(which: Callable[[Verdict], bool]) -> dict[str, Any]:
        of, chosen = Counter(v.block for v in told), Counter(v.block for v in told if which(v))
        return ratio(dict(chosen), dict(of), seed=seed, share=True).as_json()

    right = over(lambda v: v.said == v.true)
    wrong = over(lambda v: v.said not in (v.true, *_SILENT))
    yield _row(f"right leaf ({who})", "≥ 96 %", len(told), right, "%")
    yield _row(f"wrong leaf ({who})", "≤ 2 %", len(told), wrong, "%")


def _advice_rows(who: str, advised: dict[str, Any]) -> Iterable[dict[str, Any]]:
    said = advised["advisers"][who]
    helps, count = advised["some_knob_helps"], said["advised"]
    none = advised["episodes"] - helps
    yield _row(
        f"attainable gain captured ({who})", "≥ 90 %", helps, said["gain_captured_ratio"], "%"
    )
    yield _row(f"changes that hurt ({who})", "≤ 1 %", count, said["hurt_ratio"], "%")
    yield _row(f"a change where none helps ({who})", "≤ 2 %", none, said["none_helps_ratio"], "%")
