"""The pages of a backtest: leaf, path, advice and line 1, as the live pipeline writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.backtest.answers import Answers
from driftwatch.backtest.archive import Archive, Day
from driftwatch.backtest.evaluate import OF_CAPACITY, Capacity, Judged, Paged
from driftwatch.backtest.past import ArchivedMinutes, WholeRows, row_at
from driftwatch.backtest.windows import rows_of_windows
from driftwatch.collect.schema import KEY_COLUMNS, empty_scrapes
from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import Carried, EvidenceTable
from driftwatch.evidence import DETECTED
from driftwatch.model import Incident, Severity, TargetKey, Transition
from driftwatch.notify.advice import imperatives
from driftwatch.notify.follow_up import AGAIN
from driftwatch.pipeline.evaluation import Evaluation, Signals
from driftwatch.pipeline.findings import WORST_COLUMNS
from driftwatch.pipeline.minutes import with_last_speed
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment
from driftwatch.pipeline.state import State

_KEY = list(KEY_COLUMNS)
_END = [*_KEY, "end"]
_MINUTE = timedelta(minutes=1)
# What pages read of the minutes of a target's whole pool.
_OF_POOL = sorted(
    {*DETECTED, *WORST_COLUMNS, "pool_idle_ratio", "slo_missed", "requests_per_second"}
    - set(OF_CAPACITY)
)


class PageMaker:
    """From what fired and ended to its pages; a stretch after the other, in order.

    Args:
        archive: whose evidence was judged.
        advice: what a change would bring is simulated, or read where it was before.
    """

    def __init__(self, archive: Archive, plan: Plan, *, advice: bool) -> None:
        self._archive, self._plan = archive, plan
        self._whole = WholeRows(archive)
        self.answers = Answers(archive.folder, self._with_whole_row)
        self._ask = self.answers if advice else self.answers.without_advice

    @property
    def capacity(self) -> Capacity:
        """How the capacity columns are filled."""
        return Capacity(self.answers, self._minutes_of)

    def __call__(self, judgement: Judged) -> Paged:
        """The transitions of a stretch with their pages, and the open incidents with theirs."""
        waiting = any((one.page or {}).get(AGAIN) for one in judgement.before.values())
        if not judgement.happened and not waiting:
            return (), judgement.after
        evaluation = self._evaluation(judgement)
        transitions, after, _ = with_pages(evaluation, judgement.happened, judgement.after)
        return transitions, after

    def _evaluation(self, judgement: Judged) -> Evaluation:
        self._whole.open(judgement.day)
        stretch, plan = judgement.stretch, self._plan
        keys = _beside(judgement)
        rows = self._archive.rows(judgement.day, _OF_POOL, keys).filter(
            pl.col("end").is_between(stretch.first, stretch.last, closed="right")
        )
        of = pl.DataFrame([tuple(k) for k in keys], dict.fromkeys(_KEY, pl.String), orient="row")
        places = judgement.rows.with_row_index("place").join(of, on=_KEY, how="semi")
        places = places.sort(*_END)
        if len(rows) != len(places):
            raise ValueError("the evidence changed while it was judged")
        rows = rows.hstack(places.select(*OF_CAPACITY))
        state = State(
            targets=stretch.targets,
            gpus=self._archive.gpus(judgement.day),
            incidents=judgement.before,
        )
        return Evaluation(
            state,
            plan,
            _no_signals(plan, state),
            stretch.first,
            stretch.last,
            self._with_rows_of_pools(rows, judgement),
            judgement.verdicts[places["place"]],
            ArchivedMinutes(self._whole),
            windows=self._windows,
            ask=self._ask,
        )

    def _windows(self, evaluation: Evaluation, windows: pl.DataFrame) -> pl.DataFrame:
        keys = [TargetKey(*key) for key in windows.select(_KEY).unique().sort(_KEY).iter_rows()]
        whole = self._whole.of(keys, windows.select(pl.min("start")).item())
        whole = self._with_capacity(whole, evaluation.rows)
        return rows_of_windows(whole, windows, evaluation.state.targets, self._plan)

    def _with_capacity(self, whole: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        return whole.join(rows.select(*_END, *OF_CAPACITY), on=_END, how="left")

    def _with_rows_of_pools(self, rows: pl.DataFrame, judgement: Judged) -> pl.DataFrame:
        """Whole rows where a rule is per pool and fires: its page shows one of them."""
        per_pool = {rule.id for rule in self._plan.rules if rule.per == "pool"}
        fired = [
            t for t in judgement.happened if t.event == "firing" and t.incident.rule in per_pool
        ]
        if not fired:
            return rows
        pools = {t.incident.target["pool"] for t in fired}
        keys = [key for key, one in judgement.stretch.targets.items() if one.pool in pools]
        at = [t.at for t in fired]
        whole = self._whole.of(keys, min(at) - _MINUTE).filter(pl.col("end").is_in(at))
        more = [name for name in whole.columns if name not in rows.columns]
        return rows.join(whole.select(*_END, *more), on=_END, how="left", maintain_order="left")

    def _with_whole_row(self, moment: Moment) -> Moment:
        """A question as the pipeline asks it, of a row that has the reference too."""
        whole = row_at(self._whole.of([moment.target.key], moment.at - _MINUTE), moment.at)
        row = with_last_speed({**whole, **moment.row}, moment.minutes)
        return replace(moment, row=row)

    def _minutes_of(self, day: Day) -> ArchivedMinutes:
        self._whole.open(day)
        return ArchivedMinutes(self._whole)


def _beside(judgement: Judged) -> list[TargetKey]:
    """The targets of the pools that something happened in, or that wait for an answer."""
    incidents = [t.incident for t in judgement.happened]
    incidents += [one for one in judgement.before.values() if (one.page or {}).get(AGAIN)]
    pools = {one.target.get("pool") for one in incidents}
    targets = judgement.stretch.targets
    return [key for key, target in targets.items() if (target.pool or "default") in pools]


def _no_signals(plan: Plan, state: State) -> Signals:
    """There are no scrapes any more."""
    nothing = pl.DataFrame()
    table = EvidenceTable(nothing, Carried(), pl.Series(dtype=pl.Boolean))
    frames = plan.frames(state.targets)
    return Signals(frames, no_reference(), empty_scrapes(), empty_scrapes(), nothing, table)


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
        headline=document.get("summary", ""),
        targets=tuple((document.get("concerned") or {}).get("first", ())),
    )


def _advice_of(page: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What a page says to do, and the setting that it changes."""
    recommendation = page.get("recommendation") or {}
    texts: Sequence[str] = imperatives(page)
    knob = recommendation.get("knob") if recommendation.get("action") == "change" else None
    return (texts[0] if texts else None), knob
