"""WHAT MOVED: each cause with its cost, what was done, and whether that worked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.incidents.incident import Incident
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import TargetKey
from driftwatch.notify.rollout import Rollout, outcome_text, rollouts
from driftwatch.numbers import clean, duration
from driftwatch.report.cells import CELL, HOUR_SECONDS
from driftwatch.report.changes import (
    blamed_release,
    came_text,
    done_text,
    share_of,
)
from driftwatch.report.costs import (
    between,
    gpu_hours_lost,
    hangs,
    in_target,
    loss,
    missed,
    missing_stretch,
    of_pool,
    unanswered,
)
from driftwatch.report.incidents import (
    BY_SPEED,
    RETUNE,
    advised_text,
    ended_because,
    family_of,
    keys_of,
    of_week,
    over_at,
    page_lengths,
    problem,
    reported,
    subject_of,
)
from driftwatch.report.lengths import Drift, drifts_of
from driftwatch.report.material import Material
from driftwatch.report.report import ELSEWHERE, Moved, Range
from driftwatch.report.result import (
    LATER,
    is_over,
    over_text,
    restarts_of,
    restarts_text,
    result_of,
    without_changes,
)
from driftwatch.verify.verification import Verification

_TRAFFIC = "traffic"
_MOMENT = timedelta(microseconds=1)
_CELL_KEY = [*KEY, "end"]
_ELSEWHERE = Range(reason=ELSEWHERE)


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """Incidents of one trouble of a pool, with the cells that it cost."""

    family: str
    episodes: Sequence[Incident]  # by start
    drift: Drift | None  # of lengths
    cells: pl.DataFrame  # no cell belongs to two causes
    touched: pl.DataFrame  # of them and those that another cause has

    @property
    def pool(self) -> str:
        """Of all its incidents."""
        return self.episodes[0].pool


def causes_of(material: Material) -> list[Cause]:
    """Pages and tickets of the week by cause; those of an engine that is slow or hangs first.

    One server that is slow or hangs is another cause than the next one. A ticket to re-tune is
    about the same drift as the pages of its pool meanwhile. A second drift inside the first begins
    another cause; what waits after a hang does not, with lengths as usual. What two causes touch
    belongs to the first.
    """
    stuck = [one for one in of_week(material) if family_of(one) == "stuck"]
    groups: dict[tuple[Any, ...], list[Incident]] = {}
    drifts: dict[tuple[Any, ...], Drift | None] = {}
    for one in of_week(material):
        if one.severity != "notice":
            family = _TRAFFIC if family_of(one) == RETUNE else family_of(one)
            servers = keys_of(one) if family in BY_SPEED and len(keys_of(one)) == 1 else ()
            end = over_at(one, material) or material.until
            own: list[Drift | None] = [None]
            if family == _TRAFFIC:
                own = [*drifts_of(material, one.pool, one.started_at, end)] or own
                hang = next((hung for hung in stuck if _is_after(one, hung, material)), None)
                if hang is not None and own == [None] and page_lengths([one]) is None:
                    family, servers = "stuck", keys_of(hang) if len(keys_of(hang)) == 1 else ()
            for drift in own:
                key = family, one.pool, servers, None if drift is None else drift.stretch.start
                groups.setdefault(key, []).append(one)
                drifts[key] = drift
    found, taken = [], material.cells.clear()
    for key, several in sorted(groups.items(), key=lambda g: g[0][0] not in BY_SPEED):
        family, drift = key[0], drifts[key]
        touched = _cells_of(material, family, several, drift)
        mine = touched.join(taken, on=_CELL_KEY, how="anti")
        taken = pl.concat([taken, mine])
        found.append(Cause(family, several, drift, mine, touched))
    return found


def _is_after(one: Incident, hang: Incident, material: Material) -> bool:
    """Whether an incident began on the hung servers, during the hang or ten minutes after it."""
    last = (over_at(hang, material) or material.until) + CELL
    return hang.started_at <= one.started_at <= last and {*keys_of(one)} <= {*keys_of(hang)}


def moved_rows(material: Material, causes: Sequence[Cause]) -> tuple[Moved, ...]:
    """A row a cause, the costliest first. A change of a slow server stands in its row only: it is
    no answer to longer requests.
    """
    owned = []
    for one in (one for one in causes if one.family != _TRAFFIC):
        owned += _blamed(material, one)
        owned += _verifications(material, one, *_times(material, one)[:2])
    rows = [_row(material, one, owned if one.family == _TRAFFIC else ()) for one in causes]
    return tuple(sorted(rows, key=lambda row: (-_weight(row), row.start, row.subject)))


def _weight(row: Moved) -> float:
    """Which of two costs comes first; GPU-hours and requests are only roughly comparable."""
    return (row.missed.high or 0.0) + HOUR_SECONDS * (row.gpu_hours_lost.high or 0.0)


_Spans = list[tuple[datetime, datetime | None]]


def _times(material: Material, cause: Cause) -> tuple[datetime, datetime | None, _Spans]:
    """Begin and end of a cause and of each of its incidents; end: None = open."""
    start = min(one.started_at for one in cause.episodes)
    spans = [(one.started_at, _over(one, material, cause.drift)) for one in cause.episodes]
    if cause.drift is not None:  # up to the next drift, from the last one
        drift = cause.drift.stretch
        start = max(start, drift.start) if cause.drift.follows else start
        if cause.drift.is_followed:
            spans = [(begin, min(end or drift.end, drift.end)) for begin, end in spans]
    ends = [end for _, end in spans]
    return start, None if None in ends else max(e for e in ends if e is not None), spans


def _blamed(material: Material, cause: Cause) -> list[Verification]:
    """The releases that its pages blame."""
    return [one for incident in cause.episodes for one in blamed_release(material, incident)]


def _row(material: Material, cause: Cause, owned: Sequence[Verification]) -> Moved:
    """``owned``: changes that another row has."""
    pool, family, episodes, cells = cause.pool, cause.family, cause.episodes, cause.cells
    start, end, spans = _times(material, cause)
    touched = cells["end"].unique().sort().to_list()
    first, last = (touched[0] - CELL, touched[-1]) if touched else (start, start)
    drift = None if cause.drift is None else cause.drift.stretch
    release = _blamed(material, cause)
    made = [one for one in _verifications(material, cause, start, end) if one not in owned]
    # a release is no answer to longer lengths
    came = [one for one in made if family == _TRAFFIC and one.change.kind == "release"]
    changed = release + [one for one in made if one not in (*came, *release)]
    subjects = {subject_of(one) for one in episodes}
    meanwhile = of_pool(material, pool).filter(pl.col("end").is_in(touched))
    again = restarts_of(material, episodes, end, drift).filter(pl.col("end") > start)
    again = without_changes(again, owned)
    done = done_text(material, changed) if changed else _done(family, episodes, again, cells, came)
    if release and changed == release:
        done = f"{came_text(release)}; not taken back"
    rollout = rollouts(changed)[-1] if changed else []
    if rollout and (again.is_empty() or any(one.effects for one in rollout)):
        result = outcome_text(rollout, share_of(material, pool))
        result = "; ".join(filter(None, (result, over_text(material, cause.drift))))
    else:  # verify compared no minutes, or found no change
        result = result_of(material, family, episodes, again, spans, cause.drift)
    is_elsewhere = cells.is_empty() and not cause.touched.is_empty()
    return Moved(
        subject=subjects.pop() if len(subjects) == 1 else clean(pool),
        pool=pool,
        family=family,
        what=_what(cause),
        start=start,
        end=end,
        is_still=cause.drift is not None and not is_over(material, cause.drift),
        drift=drift,
        is_followed=cause.drift is not None and cause.drift.is_followed,
        counted_from=first,
        counted_to=last,
        counted_hours=len(touched) * CELL / timedelta(hours=1),
        missed=_ELSEWHERE if is_elsewhere else missed(material, cells),
        unanswered=unanswered(cells),
        gpu_hours_lost=gpu_hours_lost(material, cells),
        speed_lost=loss(material, cells),
        in_target=in_target(material, meanwhile),
        done=done,
        result=result,
        decided_by=next((v.incident_id for v in reversed(changed) if v.incident_id), None),
        incidents=tuple(reported(one, material) for one in episodes),
    )


def _over(one: Incident, material: Material, drift: Drift | None) -> datetime | None:
    """When the trouble of an incident was over; of a ticket to re-tune, which looks at whole days,
    the lengths say it, and of an engine that was slow or hung its last such minute.
    """
    over = over_at(one, material)
    if over is not None and family_of(one) in BY_SPEED:
        return min(over, max(one.last_true_at, one.started_at))
    if over is None or drift is None or family_of(one) != RETUNE:
        return over
    return max(one.started_at, min(over, drift.stretch.end))


def _what(cause: Cause) -> str:
    """What moved, in a few words: ``prompts ×2.3``, ``19 % slower``, ``token budget full``."""
    stuck = float(cause.cells["stuck_seconds"].sum())
    if cause.family == "stuck" and stuck:
        return f"no token for {duration(stuck + STUCK_SECONDS * hangs(cause.cells))}"
    if cause.family == _TRAFFIC:
        if cause.drift is not None:
            return cause.drift.text
        if (lengths := page_lengths(cause.episodes)) is not None:
            return lengths
    return problem(family_of(cause.episodes[0]), cause.episodes)


def _cells_of(
    material: Material,
    family: str,
    episodes: Sequence[Incident],
    drift: Drift | None,
) -> pl.DataFrame:
    """The cells that incidents cover, each once.

    Of a slow server its own while it was slow, of one that hung also its backlog after that; of
    anything else the pool's, while it missed its targets around it too, and while lengths were
    longer.
    """
    parts = [material.cells.clear()]
    if drift is not None and drift.stretch.ratio > 1:
        of = of_pool(material, episodes[0].pool)
        parts.append(between(of, drift.stretch.start, drift.stretch.end))
    for one in episodes:
        end = _over(one, material, drift)
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
    cells = pl.concat(parts).unique(_CELL_KEY, maintain_order=True)
    return cells if drift is None else cells.filter(drift.holds())


def _verifications(
    material: Material, cause: Cause, began: datetime, end: datetime | None
) -> list[Verification]:
    """Verifications of the changes that its incidents advised, and of others on their servers from
    their begin to an hour after their end.
    """
    keys = {key for one in cause.episodes for key in keys_of(one)}
    ids, drift = {one.id for one in cause.episodes}, cause.drift
    last = material.until if end is None else end + LATER
    is_part = drift is not None and (drift.follows or drift.is_followed)
    return [
        one
        for one in material.verifications
        if one.change.at < material.until
        and (one.incident_id in ids or one.key in keys)
        and (began <= one.change.at <= last or (one.incident_id in ids and not is_part))
    ]


def _done(
    family: str,
    episodes: Sequence[Incident],
    again: pl.DataFrame,
    cells: pl.DataFrame,
    came: Rollout,
) -> str:
    """Without a known change of a setting: the release that ``came``, restarts, how it ended, or
    who acknowledged; and what was advised.
    """
    if not again.is_empty():
        texts = [came_text(step) for step in rollouts(came)]
        if not (rest := without_changes(again, came)).is_empty():
            texts.append(restarts_text(rest))
        done = "; ".join(texts)
    elif (reason := ended_because(episodes)) is not None:
        return reason
    else:
        by = sorted({one.acknowledged_by for one in episodes if one.acknowledged_by})
        done = f"acknowledged by {clean(by[0])}" if by else "no change found"
        if family == "stuck" and len(cells) and not cells["restarted"].has_nulls():
            return f"{f'{done}; ' if by else ''}it came back without a restart"
    before = [one for one in episodes if again.is_empty() or one.started_at < again["end"][0]]
    advised = advised_text((before or episodes)[-1])
    return f"{done}; advised: {advised}" if advised else done
