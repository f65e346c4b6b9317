"""The walk through the tree and the limits, as ``explain`` prints them. Pure.

A question takes a line or two and repeats nothing of an earlier one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from driftwatch.model import Diagnosis, Limit, Step
from driftwatch.notify.columns import evidence_text, evidence_value, name_of
from driftwatch.notify.layout import columns, pad, wrap
from driftwatch.notify.phrases.limits import ALWAYS_FULL, LIMIT_WORDS, near_cap, preemptions
from driftwatch.numbers import clean, count, duration, is_as_before, percent, times

_QUESTION_WIDTH, _ANSWER_WIDTH, _BEFORE_WIDTH = 41, 4, 8
_ANSWER_AT = _QUESTION_WIDTH + 2
_COLUMN = re.compile(r"\b([a-z0-9]+(?:_[a-z0-9]+)+): ")  # a column before its reason
_HITS_LOST, _LOST = "prefix_hits_lost", "lost_prefix_hits_prefill_ratio"
# the questions name these values
_NAMES = ("binding_limit", "engine_kind")
# not printed at 0
_QUIET_AT_ZERO = (
    "seconds_since_last_token",
    "waiting_deferred_share_10m_ratio",
    "waiting_deferred_requests",
)

# cause of a diagnosis → its clause
_CAUSES = {
    "prompts": "prompts are longer",
    "generations": "generations are longer",
    "prefix_hits": "prefix hits were lost",
}


class _Fact(NamedTuple):
    """A fact that decided a question: one column, or why it is unknown."""

    now: str  # with its name and unit
    before: str = ""  # the baseline's number; empty = it has none
    both: str = ""  # from → to
    moved: float = 0.0  # of a length: log(now / baseline), absolute

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Sort key: the largest move first, the number of requests last."""
        return self.now.startswith("n "), not self.before, -self.moved


class PathRow(NamedTuple):
    """A question of the walk with the facts that decided it."""

    question: str
    answer: str
    before: str  # the baseline's number; empty = it has none
    now: str  # with its name and unit, or why it is unknown
    also: tuple[str, ...] = ()  # further facts of a yes
    both: str = ""  # baseline → now, with name and unit


class LimitRow(NamedTuple):
    """A limit as a row of words."""

    name: str
    room_for: str  # requests
    in_use: str  # requests
    left: str
    remark: str  # how often it was full; empty = never


def path_rows(steps: Sequence[Step]) -> list[PathRow]:
    """The walk, a row per question, without repetitions."""
    rows, printed, asked = [], set[str](), set[tuple[str, str]]()
    for step in steps:
        answered = (step.question.removeprefix("And ").lower(), step.answer)
        if answered in asked:
            continue
        asked.add(answered)
        first, *others = sorted(_facts(step) or [_Fact("")], key=lambda one: one.rank)
        answer = "unknown" if step.answer == "not asked" else step.answer
        # a "no" and an unknown need only one fact
        others = [one for one in others if step.answer == "yes" and one.now not in printed]
        printed.update(one.now for one in (first, *others))
        also = tuple(one.both or one.now for one in others)
        question = clean(step.question)
        rows.append(PathRow(question, answer, first.before, first.now, also, first.both))
    return rows


def render_path(diagnosis: Diagnosis, *, evidence: Mapping[str, Any], width: int = 80) -> str:
    """The walk as a table: question, answer, the deciding fact in the baseline and now.

    ``evidence``: column → value of the window.
    """
    seconds = evidence.get("duration_seconds")
    title = "How it was decided" + (f" (last {duration(seconds)})" if seconds else "")
    at = _ANSWER_AT + _ANSWER_WIDTH
    if any(step.before for step in diagnosis.path):
        title = f"{title:<{at}}{'baseline':>{_BEFORE_WIDTH}}  now"
    out = [title]
    for row in path_rows(diagnosis.path):
        question = f" {pad(row.question, _QUESTION_WIDTH)}"
        if columns(question) >= _ANSWER_AT:
            out += wrap(question, width, " ")
            question = " " * (_ANSWER_AT - 1)
        before = f"{row.before:>{_BEFORE_WIDTH}} " if row.before else ""
        line = f"{question} {row.answer:<{_ANSWER_WIDTH}}{before} {row.now}".rstrip()
        out += wrap(line, width, " " * at)
        if row.also:
            out += wrap("   " + "; ".join(row.also), width, "   ")
    if diagnosis.leaf != "undetermined":
        out += wrap(f" So: {cause_of(diagnosis, evidence)}", width, " ")
    return "\n".join(out)


def cause_of(diagnosis: Diagnosis, evidence: Mapping[str, Any]) -> str:
    """``the KV cache is full, because prompts are longer``; ``evidence``: column → value."""
    because = _because(diagnosis.cause, evidence)
    text = clean(diagnosis.meaning or diagnosis.leaf)
    return f"{text}, because {because}" if because else text


def _because(cause: str | None, evidence: Mapping[str, Any]) -> str | None:
    """The cause as a clause; for demand, the longer lengths, else the requests; None if neither."""
    if cause != "demand":
        return _CAUSES.get(cause or "")
    names = {"prompt_tokens_mean": "prompts are", "generation_tokens_mean": "generations are"}
    for name, are in names.items():
        ratio = evidence.get(f"{name}_ratio") or 1.0
        if ratio > 1 and not is_as_before(ratio):
            return f"{are} {times(ratio)} as long"
    ratio = evidence.get("requests_per_second_ratio") or 1.0
    return None if ratio <= 1 or is_as_before(ratio) else "more requests come"


def short_reason(reason: str) -> str:
    """The reason without its remedy: ``no baseline`` of ``no baseline (--baseline FROM..TO)``."""
    return clean(reason).split(" (")[0]


def _facts(step: Step) -> list[_Fact]:
    """The step's known values, or why it has none."""
    if step.reason and step.answer in ("unknown", "not asked"):
        why = short_reason(step.reason.removeprefix("unknown: "))
        return [_Fact(_COLUMN.sub(lambda m: f"{name_of(m[1])}: ", why))]
    facts = []
    if step.evidence.get(_HITS_LOST) is False:
        lost = step.evidence.get(_LOST)
        text = "prefix hits as in the baseline" if lost is None else evidence_text(_LOST, lost)
        return [_Fact(text)]
    for column, amount in sorted(step.evidence.items()):
        if amount is None or column in _NAMES or (column in _QUIET_AT_ZERO and amount == 0):
            continue
        if column == "speed_at_equal_load_ratio" and step.evidence.get("slower", amount) is None:
            continue  # a later question prints why it is not judged
        if isinstance(amount, bool):
            continue  # the answer has it
        if column == "tokens_per_output" and amount == 1:
            facts.append(_Fact("no drafts: one token a step"))
        elif column == "preemptions_per_second":
            facts.append(_Fact(preemptions(amount)))
        elif column.endswith("_tokens_mean_ratio") and column[:-6] in step.evidence:
            continue  # the mean from → to has it
        else:
            facts.append(_fact(column, amount, step.before.get(column)))
    if step.reason and not facts:
        facts = [_Fact(short_reason(step.reason))]
    return facts


def _fact(column: str, amount: Any, before: Any) -> _Fact:
    now = evidence_text(column, amount)
    if column.endswith("_tokens_mean"):  # the unit behind both numbers
        now = f"{evidence_value(column, amount)} {name_of(column)}"
    if before is None:
        return _Fact(now)
    unit = evidence_value(column, amount).partition(" ")[2]
    was = evidence_value(column, before)
    number = was.removesuffix(f" {unit}") if unit else was
    is_length = column.endswith("_tokens_mean") and before > 0 < amount
    moved = abs(math.log(amount / before)) if is_length else 0.0
    return _Fact(now, number, evidence_text(column, amount, before=before), moved)


def render_limits(limits: Sequence[Limit], width: int = 80) -> str:
    """The limits as a table: limit, room for, in use, left, and how often it was full."""
    rows = [LimitRow("Limit", "room for", "in use", "left", "")]
    rows += [one._replace(name=f" {one.name}") for one in map(limit_row, limits)]
    sizes_of = [max(columns(row[at]) for row in rows) for at in range(4)]
    out = []
    for name, *figures, remark in rows:
        aligned = "  ".join(f"{text:>{sizes_of[at]}}" for at, text in enumerate(figures, start=1))
        head = f"{pad(name, sizes_of[0])}  {aligned}"
        out += wrap(f"{head}  {remark}".rstrip(), width, " " * (len(head) + 2))
    return "\n".join(out)


def limit_row(limit: Limit) -> LimitRow:
    """A limit as a row of words."""
    sizes = (limit.allows_requests, limit.in_flight_requests)
    allows, running = ("unknown" if size is None else count(size) for size in sizes)
    room = "unknown" if limit.margin_ratio is None else percent(limit.margin_ratio)
    notes = []
    if limit.binds:
        # scrapes below the cap lower the mean: it was full only at times
        has_cap = limit.name == "max_num_seqs" and None not in sizes
        at_times = has_cap and not near_cap(sizes[1] or 0.0, sizes[0] or 0.0)
        room = room if at_times else "0 %"
        notes.append(_how_full(limit, at_times=at_times))
    elif limit.binds is None and not limit.note:
        notes.append("unknown whether it is full")
    if limit.note == "inferred":
        allows += " (inferred)"
    elif limit.note:
        notes.append(clean(limit.note))
    if limit.preemptions_per_second is not None:
        notes.append(preemptions(limit.preemptions_per_second))
    name = LIMIT_WORDS.get(limit.name, clean(limit.name))
    return LimitRow(name, allows, running, room, "; ".join(notes))


def _how_full(limit: Limit, *, at_times: bool) -> str:
    share, waiting = limit.full_ratio, limit.waiting_requests
    often = share is None or share >= ALWAYS_FULL
    full = "full at times" if at_times else "full"
    if not often and not at_times:
        full = f"full in {percent(share or 0.0)} of scrapes"
    then = "" if often else " then"
    if limit.usage_ratio is not None:
        full += f" at {percent(limit.usage_ratio)} in use"
    return full if waiting is None else f"{full}; {count(waiting)} requests queue{then}"
