"""What is known of a target in ten minutes: the finding of ``explain``, from stored minutes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from driftwatch.baselines.documents import baseline_of_row
from driftwatch.baselines.in_force import in_force
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict
from driftwatch.model import Finding, Incident, Target
from driftwatch.notify.explanation import fact_texts, target_text, todo, verdict_text, window_text
from driftwatch.notify.numbers import clean, cut
from driftwatch.notify.path import limit_texts
from driftwatch.pipeline.explain import Window, explain, window_ending
from driftwatch.pipeline.plan import Plan
from driftwatch.web.database import WebStore
from driftwatch.web.pages.incident import Line

LENGTH = timedelta(minutes=10)
_LONGEST = 600


@dataclass(frozen=True, slots=True, eq=False)
class TargetAnswer:
    """A window of a target, explained."""

    finding: Finding | None  # None = no minute with a scrape lies in the window
    window: Window
    baseline: Baseline | None  # in force; None = there is none
    why: str | None  # why there is no finding


def target_answer(store: WebStore, target: Target, plan: Plan, end: datetime) -> TargetAnswer:
    """What the ten minutes before ``end`` say of a target, against its baseline."""
    pool = target.pool or "default"
    rows = store.baselines_naming(target.key, pool)
    every = in_force(Baselines(tuple(map(baseline_of_row, rows))), {target.key: target}, plan)
    baseline = every.baselines.of_target(target.key.instance, target.key.engine, pool)
    window = window_ending(end, LENGTH)
    try:
        finding, window = explain(store, target, window, plan, every.reference, today=end.date())
    except NoVerdict as error:
        why = f"{error.message}; {error.help_text}" if error.help_text else error.message
        return TargetAnswer(None, window, baseline, clean(why))
    return TargetAnswer(finding, window, baseline, None)


def answer_lines(finding: Finding, incidents: list[Incident]) -> tuple[str, list[Line]]:
    """The answer in a sentence, and what to do, as ``explain`` prints them."""
    lines = [_labelled(text) for text in todo(finding, incidents)]
    return cut(verdict_text(finding), _LONGEST), lines


def _labelled(text: str) -> Line:
    """``Do       drain it`` → its label of at most eight letters, and the rest."""
    label = text[:8].strip()
    if " " in label or text[8:9] != " ":
        label, rest = "", text
    else:
        rest = text[8:]
    return Line(label=_headed(label.rstrip(":")), text=cut(clean(rest.strip()), _LONGEST))


def _headed(label: str) -> str:
    return "GPUs" if label == "gpus" else label[:1].upper() + label[1:]


def fact_lines(answer: TargetAnswer) -> Iterator[Line]:
    """What else was measured, or why not."""
    if answer.finding is not None:
        for label, text in fact_texts(answer.finding, answer.window.end):
            if text:
                yield Line(label=_headed(label), text=cut(clean(text), _LONGEST))


def engine_line(finding: Finding) -> str:
    """Model, GPUs and settings."""
    return target_text(finding).partition(": ")[2]


def window_line(answer: TargetAnswer) -> str | None:
    """The ten minutes, how many requests finished, and the baseline."""
    if answer.finding is None:
        return None
    window = answer.window
    return window_text(answer.finding, window.start, window.end, window.end.date())


def limit_cells(finding: Finding) -> list[dict[str, Any]]:
    """The limits with their margins, as ``explain`` prints them."""
    if finding.diagnosis is None:
        return []
    now, limits = finding.evidence, finding.diagnosis.limits
    waiting = now.get("binding_waiting_requests")
    texts = limit_texts(
        limits,
        waiting=now.get("waiting_requests") if waiting is None else waiting,
        preempted=now.get("preemptions_per_second"),
        full_share=now.get("limit_binding_share_10m_ratio"),
    )
    return [
        {"is_full": limit.binds, **row._asdict()} for limit, row in zip(limits, texts, strict=True)
    ]
