"""WHAT MOVED: each cause with its cost, what was done, and whether that worked. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.notify.verification_line import from_to
from driftwatch.numbers import clean, cut, duration, percent, percent_range, plural
from driftwatch.report.cells import CELL, HOUR_SECONDS
from driftwatch.report.costs import (
    between,
    gpu_hours_lost,
    in_target,
    loss,
    missed,
    missing_stretch,
    of_pool,
    total,
    unanswered,
)
from driftwatch.report.incidents import (
    advised_text,
    end_of,
    ended_because,
    family_of,
    keys_of,
    of_week,
    page_lengths,
    problem,
    reported,
    subject_of,
)
from driftwatch.report.lengths import drift_text
from driftwatch.report.material import Material
from driftwatch.report.report import Moved, Range, Restarts
from driftwatch.report.result import BESIDE, NOT_JUDGED, restarts_of, result_text
from driftwatch.verify.figures import WORDS
from driftwatch.verify.verification import Verification

# verdict → what the report calls it, what a person looks for first in front
_WORDS: Mapping[str, str] = {
    "FAIL": "did not work",
    "INCONCLUSIVE": "not proven",
    "open": "not verified yet",
    "PASS": "worked",
}
# an engine that is slow or hangs costs GPU time; anything else costs requests
BY_SPEED = ("speed", "stuck")
INFERRED = " (inferred)"  # behind a value that steps show
_MOMENT = timedelta(microseconds=1)
_ROLLOUT = timedelta(hours=1)


def moved_rows(material: Material) -> tuple[Moved, ...]:
    """A row a cause, the costliest first."""
    causes = [(family, own, _cells_of(material, family, own)) for family, own in _causes(material)]
    spans = [(own[0].pool, _span(own, cells)) for _, own, cells in causes]
    rows = []
    for number, (family, own, cells) in enumerate(causes):
        pool, span = spans[number]
        others = [s for at, (p, s) in enumerate(spans) if p == pool and at != number]
        beside = _beside(span, others)
        rows.append(_row(material, family, own, cells, beside))
    return tuple(sorted(rows, key=lambda row: (-_weight(row), row.start, row.subject)))


def cells_of_causes(material: Material) -> pl.DataFrame:
    """The cells that pages and tickets of the week cover, each once."""
    parts = [_cells_of(material, family, own) for family, own in _causes(material)]
    return pl.concat([material.cells.clear(), *parts]).unique([*KEY, "end"])


def _span(episodes: Sequence[Incident], cells: pl.DataFrame) -> tuple[datetime, datetime]:
    """From the first of its ten minutes to the last."""
    every = sorted({*cells["end"]}) or [min(one.started_at for one in episodes)]
    return every[0] - CELL, every[-1]


def _beside(
    span: tuple[datetime, datetime], others: Sequence[tuple[datetime, datetime]]
) -> tuple[datetime, datetime, datetime, datetime]:
    """The stretch with where the two hours before it begin and those after it end: other causes
    of the pool are left out."""
    first, last = span
    ends = [min(end, first) for start, end in others if start < first]
    begins = [max(start, last) for start, end in others if end > last]
    return max([first - BESIDE, *ends]), first, last, min([last + BESIDE, *begins])


def _in_target(material: Material, pool: str, start: datetime, end: datetime) -> Range:
    if start >= end:
        return Range(reason="another incident")
    return in_target(material, between(of_pool(material, pool), start, end))


def _weight(row: Moved) -> float:
    """Which of two costs comes first; GPU-hours and requests are only roughly comparable."""
    return (row.missed.high or 0.0) + HOUR_SECONDS * (row.gpu_hours_lost.high or 0.0)


def _causes(material: Material) -> list[tuple[str, list[Incident]]]:
    """Pages and tickets of the week by cause, with its family, in order of their first start.

    One server that is slow or hangs is another cause than the next one.
    """
    groups: dict[tuple[object, ...], list[Incident]] = {}
    for one in of_week(material):
        if one.severity != "notice":
            family = family_of(one)
            servers = keys_of(one) if family in BY_SPEED and len(keys_of(one)) == 1 else ()
            groups.setdefault((family, one.pool, servers), []).append(one)
    return [(str(group[0]), own) for group, own in groups.items()]


def _row(
    material: Material,
    family: str,
    episodes: Sequence[Incident],
    cells: pl.DataFrame,
    beside: tuple[datetime, datetime, datetime, datetime],
) -> Moved:
    """``cells``: of the cause; ``beside``: where the time before it begins, its first and last
    time, and where the time after it ends.
    """
    pool = episodes[0].pool
    before, first, last, after = beside
    lost = loss(material, cells) if family == "speed" else Range(reason="not about speed")
    ends = [end_of(one, material) for one in episodes]
    end = None if None in ends else max(one for one in ends if one is not None)
    start = min(one.started_at for one in episodes)
    changed, waited = _verifications(material, episodes), total(cells, "queue_seconds_sum")
    subjects = {subject_of(one) for one in episodes}
    again = restarts_of(material, episodes, first)
    verdict, measured = (
        _verdict(changed, material.until),
        result_text(material, family, episodes, again, changed),
    )
    # the share that the pool missed decides; a verification where that cannot be judged
    is_judged = again is not None and not measured.startswith(NOT_JUDGED)
    return Moved(
        subject=subjects.pop() if len(subjects) == 1 else clean(pool),
        pool=pool,
        family=family,
        what=_what(material, family, episodes, lost, cells),
        start=start,
        end=end,
        counted_from=first,
        counted_to=last,
        missed=missed(material, cells),
        unanswered=unanswered(cells),
        given_up=total(cells, "given_up_requests"),
        gpu_hours_lost=gpu_hours_lost(material, cells),
        waited_hours=None if waited is None else waited / HOUR_SECONDS,
        speed=Range(
            low=None if lost.high is None else 1 - lost.high,
            high=None if lost.low is None else 1 - lost.low,
            reason=lost.reason,
        ),
        before=_in_target(material, pool, before, first),
        before_from=before,
        during=_in_target(material, pool, first, last),
        after=_in_target(material, pool, last, after),
        after_to=after,
        restarts=again,
        done=done_text(changed) or _done(episodes, again),
        result=measured if is_judged else verdict or measured,
        incidents=tuple(reported(one, material) for one in episodes),
        verifications=tuple(one.id for one in changed),
    )


def _what(
    material: Material, family: str, episodes: Sequence[Incident], lost: Range, cells: pl.DataFrame
) -> str:
    """What moved, in a few words: ``prompts ×2.3``, ``19 % slower``, ``token budget full``."""
    if family == "speed":
        if lost.low is None or lost.high is None:
            return "slower"
        middle = percent((lost.low + lost.high) / 2)
        return f"{middle} slower ({percent_range(lost.low, lost.high)})"
    stuck = float(cells["stuck_seconds"].sum())
    if family == "stuck" and stuck:
        return f"no token for {duration(stuck)}"
    if family == "traffic" and len(cells):
        ends = cells["end"].sort()
        drift = drift_text(material, episodes[0].pool, ends[0] - CELL, ends[-1])
        if drift := drift or page_lengths(episodes):
            return drift
    return problem(family, episodes)


def _cells_of(material: Material, family: str, episodes: Sequence[Incident]) -> pl.DataFrame:
    """The cells that incidents cover, each once.

    Of a slow server its own while it was slow, of one that hung also its backlog after that; of
    anything else the pool's, while it missed its targets around it too.
    """
    parts = [material.cells.clear()]
    for one in episodes:
        end = end_of(one, material)
        # what keeps an incident open is not its cost
        stop = material.until if end is None else min(one.last_true_at, end)
        stretches: list[tuple[Sequence[TargetKey], datetime, datetime]] = [
            ((server.key,), server.since, min(server.last_true_at, stop)) for server in one.servers
        ]
        if family not in BY_SPEED:
            stretches = [((), max(one.started_at, material.since), stop)]
        for keys, start, last in stretches:
            mine = of_pool(material, one.pool, keys)
            if family != "speed":
                start, last = missing_stretch(material, mine, start, last)
            parts.append(between(mine, start, max(last, start + _MOMENT)))
    return pl.concat(parts).unique([*KEY, "end"], maintain_order=True)


def _verifications(material: Material, incidents: Sequence[Incident]) -> list[Verification]:
    """Verifications of changes that came after incidents began, on their servers or pools."""
    keys = {key for one in incidents for key in keys_of(one)}
    ids, began = {one.id for one in incidents}, min(one.started_at for one in incidents)
    return [
        one
        for one in material.verifications
        if one.change.at < material.until
        and (
            one.incident_id in ids
            or (TargetKey(one.instance, one.engine) in keys and one.change.at >= began)
        )
    ]


def rollouts(verifications: Iterable[Verification]) -> list[list[Verification]]:
    """Verifications of the same change of a pool's servers, within an hour of the one before."""
    found: dict[tuple[str, str], list[list[Verification]]] = {}
    for one in sorted(verifications, key=lambda v: (v.change.at, v.instance, v.engine)):
        several = found.setdefault((one.pool, done_text([one])), [])
        if not several or one.change.at - several[-1][-1].change.at >= _ROLLOUT:
            several.append([])
        several[-1].append(one)
    return [rollout for several in found.values() for rollout in several]


def rollout_verdict(rollout: Sequence[Verification], until: datetime) -> str:
    """The verdict of most of its servers, of as many the worse; open while one of them is."""
    verdicts = Counter(verdict_at(one, until) for one in rollout)
    if verdicts["open"]:
        return "open"
    return max(_WORDS, key=lambda name: verdicts[name])


def done_text(verifications: Iterable[Verification]) -> str:
    """What was changed: ``release 0.11.0``, ``max_num_seqs 64 or 128 (inferred)``."""
    values: dict[str, dict[str, None]] = {}
    for one in verifications:
        for name, (_, after) in sorted(one.change.what.items()):
            values.setdefault(name, {})[cut(clean(after), 24)] = None
    texts = []
    for name, several in values.items():
        known = sorted((t.removesuffix(INFERRED) for t in several), key=lambda t: (len(t), t))
        inferred = INFERRED if any(text.endswith(INFERRED) for text in several) else ""
        texts.append(f"{clean(name)} {' or '.join(known)}{inferred}")
    return ", ".join(texts)


def verdict_at(one: Verification, until: datetime) -> str:
    """Its verdict as it stood at a time."""
    return "open" if one.closed_at is None or one.closed_at >= until else one.verdict


def _verdict(verifications: Sequence[Verification], until: datetime) -> str | None:
    """Did it work: ``worked, 1 → 100 %``, or of several ``7 worked``; None without any."""
    verdicts = Counter(verdict_at(one, until) for one in verifications)
    if not verdicts:
        return None
    if len(verdicts) > 1:
        return ", ".join(f"{verdicts[v]} {word}" for v, word in _WORDS.items() if verdicts[v])
    (verdict,), effects = verdicts, verifications[-1].effects
    if verdict == "open" or not effects:
        return _WORDS[verdict]
    # requests in target say most; else the first figure, which decided the verdict
    first = next((one for one in effects if one.name == "in_target_ratio"), effects[0])
    name = "" if first.name == "in_target_ratio" else f"{effect_name(first.name)} "
    return f"{_WORDS[verdict]}, {name}{from_to(first)}"


def effect_name(column: str) -> str:
    """``TTFT`` of ttft_seconds_mean; other columns as ``driftwatch verify`` calls them."""
    stem = next((s for s in ("ttft", "itl", "tpot", "e2e") if column.startswith(f"{s}_")), None)
    return stem.upper() if stem else WORDS.get(column) or clean(column)


def _done(episodes: Sequence[Incident], again: Restarts | None) -> str:
    if again is not None:
        return f"{plural(again.count, 'restart')} {again.first:%a %H:%M}"
    if (reason := ended_because(episodes)) is not None:
        return reason
    acknowledged = sorted({one.acknowledged_by for one in episodes if one.acknowledged_by})
    done = f"acknowledged by {clean(acknowledged[0])}" if acknowledged else "no change found"
    advised = advised_text(episodes[-1])
    return f"advised: {advised}; {done}" if advised else done
