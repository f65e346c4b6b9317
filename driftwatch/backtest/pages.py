"""The pages of a backtest: leaf and line 1 as the live pipeline writes them, advice as stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.backtest.stored import OF_PAGES, StoredHistory
from driftwatch.collect.schema import KEY, TIME
from driftwatch.model import Incident, Severity, TargetKey, Transition
from driftwatch.notify.advice import imperatives
from driftwatch.pipeline.evaluation import Evaluation, signals_from_rows
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State, Stretch
from driftwatch.pipeline.stored_evidence import TEN_MINUTES

# An incident of the service is that of a page whose times are as near.
_NEAR = timedelta(minutes=10)
_A_MINUTE = timedelta(minutes=1)
_MINUTE = [*KEY, "end"]
# Targets whose minutes of a day are read whole at a time.
_MOST_TARGETS = 8


class PastPages:
    """The pages of one day; what one rule set's pages were made of is kept for the next one's.

    Nothing is simulated.
    """

    def __init__(self, history: StoredHistory) -> None:
        self._history = history
        # evidence of the ten minutes and of the minute that end with each, by KEY and end
        self._windows: list[pl.DataFrame] = []
        self._minutes: list[pl.DataFrame] = []
        self._made: set[tuple[TargetKey, datetime]] = set()

    def of(
        self,
        plan: Plan,
        stretch: Stretch,
        rows: pl.DataFrame,
        verdicts: pl.DataFrame,
        before: Mapping[str, Incident],
        happened: Sequence[Transition],
        after: Mapping[str, Incident],
    ) -> tuple[tuple[Transition, ...], Mapping[str, Incident]]:
        """What happened in a stretch with its pages, and the open incidents with theirs.

        ``rows``: the minutes of the stretch, with the columns that rules read; ``verdicts``: beside
        them.
        """
        if not happened:
            return (), after
        is_told = rows["end"].is_in(sorted({t.at for t in happened}))
        rows, verdicts = rows.filter(is_told), verdicts.filter(is_told)
        self._make(_concerned(happened, rows, verdicts))
        whole = pl.concat(self._minutes)
        mine = rows.select(*KEY, "end").join(whole, on=_MINUTE, how="left", maintain_order="left")
        # of the others of a pool what rules read is told
        known = mine.select(
            pl.coalesce(pl.col(name), rows[name]) if name in rows.columns else pl.col(name)
            for name in mine.columns
        )
        history, reference = self._history, self._history.reference(stretch.targets)
        evaluation = Evaluation(
            State(targets=stretch.targets, incidents=before),
            replace(plan, simulations=0),
            signals_from_rows(plan.frames(stretch.targets), known, reference),
            stretch.first,
            stretch.last,
            known,
            verdicts,
            PastMinutes(store=history.store),
            windows=lambda _, wanted: wanted.select(_MINUTE).join(
                pl.concat(self._windows), on=_MINUTE, how="left", maintain_order="left"
            ),
        )
        transitions, open_after, _ = with_pages(evaluation, happened, after)
        return transitions, open_after

    def _make(self, wanted: set[tuple[TargetKey, datetime]]) -> None:
        """Make the evidence of minutes that are not made yet."""
        new = sorted(wanted - self._made)
        self._made |= wanted
        keys = sorted({key for key, _ in new})
        for first in range(0, len(keys), _MOST_TARGETS):
            some = set(keys[first : first + _MOST_TARGETS])
            ends = [(*key, end) for key, end in new if key in some]
            asked = pl.DataFrame(
                ends, schema=dict.fromkeys(KEY, pl.String) | {"end": TIME}, orient="row"
            )
            since, until = min(e[2] for e in ends) - TEN_MINUTES, max(e[2] for e in ends)
            stored = self._history.store.past(since, until, some, OF_PAGES)
            for length, made in ((TEN_MINUTES, self._windows), (_A_MINUTE, self._minutes)):
                windows = asked.select(
                    *KEY, (pl.col("end") - length).cast(TIME).alias("start"), "end"
                )
                made.append(self._history.evidence(stored, windows))


def _concerned(
    happened: Sequence[Transition], rows: pl.DataFrame, verdicts: pl.DataFrame
) -> set[tuple[TargetKey, datetime]]:
    """Who the pages of these minutes are about; of a rule that is per pool who it is true of."""
    concerned: set[tuple[TargetKey, datetime]] = set()
    for one in happened:
        labels = one.incident.target
        keys = list(one.concerned)
        if labels.get("instance"):
            keys.append(TargetKey(labels["instance"], labels["engine"]))
        elif not keys and one.incident.rule in verdicts.columns:
            true = rows.filter(verdicts[one.incident.rule] & (rows["end"] == one.at))
            keys = [TargetKey(*key) for key in true.select(KEY).iter_rows()]
        concerned |= {(key, one.at) for key in keys}
    return concerned


def advised_then(pages: Iterable[PastPage], incidents: Iterable[Incident]) -> list[PastPage]:
    """Pages with the advice that the service gave on its own of the same rule and time."""
    given: dict[tuple[str, str], list[Incident]] = {}
    for one in incidents:
        if one.page is not None and one.firing_at is not None:
            given.setdefault((one.rule, PastPage.of(one).where), []).append(one)
    advised = []
    for page in pages:
        near = [
            (abs(one.firing_at - page.fired_at), one)
            for one in given.get((page.rule, page.where), ())
            if one.firing_at is not None
        ]
        apart, stored = min(near, key=lambda pair: pair[0], default=(None, None))
        if stored is not None and apart is not None and apart <= _NEAR and stored.page is not None:
            advice, knob = _advice_of(stored.page)
            page = replace(page, advice=advice, knob=knob)
        advised.append(page)
    return advised


@dataclass(frozen=True, slots=True)
class PastPage:
    """One incident that would have been sent, from its first page to its end."""

    id: str  # of the incident, as the live service would have called it
    rule: str  # rule id
    alert: str  # alert name
    severity: Severity
    target: Mapping[str, str]  # labels of the target group: instance and engine, or the pool
    started_at: datetime  # when the condition became true
    fired_at: datetime
    resolved_at: datetime | None = None  # None = it fires still at the end of the history
    closed: str | None = None  # why it ended although its condition was not false, else None
    leaf: str | None = None  # where its diagnosis ended, None without one
    advice: str | None = None  # what to do, as of its last answer; None = the page says nothing
    knob: str | None = None  # the setting that the advice changes
    headline: str = ""  # line 1 of its first page
    targets: tuple[str, ...] = ()  # of a page about several targets: the first of them

    @classmethod
    def of(cls, incident: Incident) -> PastPage:
        """A page without what it says."""
        return cls(
            id=incident.id,
            rule=incident.rule,
            alert=incident.alert,
            severity=incident.severity,
            target=dict(incident.target),
            started_at=incident.started_at,
            fired_at=incident.firing_at or incident.started_at,
            resolved_at=incident.resolved_at,
        )

    @property
    def incident(self) -> Incident:
        """Its incident while it fires."""
        return Incident(
            id=self.id,
            key=self.id,
            rule=self.rule,
            alert=self.alert,
            severity=self.severity,
            target=self.target,
            state="firing",
            started_at=self.started_at,
            last_true_at=self.fired_at,
            firing_at=self.fired_at,
        )

    @property
    def is_of_pool(self) -> bool:
        """It is about servers of a pool together."""
        return not self.target.get("instance")

    @property
    def where(self) -> str:
        """The server, or the pool."""
        if instance := self.target.get("instance"):
            return TargetKey(instance, self.target.get("engine", "0")).text
        return self.target.get("pool", "")


def past_pages(transitions: Iterable[Transition]) -> list[PastPage]:
    """What fired, in order; each with its end and its last advice."""
    pages: dict[str, PastPage] = {}
    for transition in transitions:
        incident, page = transition.incident, transition.incident.page
        if transition.event == "firing":
            pages[incident.id] = _fired(incident, page)
        elif incident.id not in pages:
            continue
        elif transition.event == "resolved":
            pages[incident.id] = replace(
                pages[incident.id], resolved_at=transition.at, closed=transition.reason
            )
        elif page is not None:
            advice, knob = _advice_of(page)
            pages[incident.id] = replace(pages[incident.id], advice=advice, knob=knob)
    return list(pages.values())


def _fired(incident: Incident, page: Mapping[str, Any] | None) -> PastPage:
    advice, knob = (None, None) if page is None else _advice_of(page)
    document = page or {}
    return replace(
        PastPage.of(incident),
        leaf=(document.get("diagnosis") or {}).get("leaf"),
        advice=advice,
        knob=knob,
        headline=document.get("summary", "").partition(". No advice:")[0],
        targets=tuple((document.get("concerned") or {}).get("first", ())),
    )


def _advice_of(page: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What a page says to do, and the setting that it changes."""
    recommendation = page.get("recommendation") or {}
    if recommendation.get("action") == "insufficient":
        return None, None
    texts: Sequence[str] = imperatives(page)
    knob = recommendation.get("knob") if recommendation.get("action") == "change" else None
    return (texts[0] if texts else None), knob
