"""The walk through the tree and the limits for a reader of ``explain``. Pure.

A line or two a question; what an earlier question printed is not printed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from driftwatch.model import Diagnosis, Limit
from driftwatch.notify.columns import evidence_text
from driftwatch.notify.layout import columns, pad, spell, wrap
from driftwatch.notify.numbers import clean, count, duration, percent
from driftwatch.notify.phrases.limits import LIMIT_WORDS, near_cap, preemptions

_QUESTION_WIDTH = 28
_INDENT = "   "
# at rest these say nothing, whatever the answer
_QUIET_AT_ZERO = (
    "seconds_since_last_token",
    "waiting_deferred_share_10m_ratio",
    "waiting_deferred_requests",
)

Values = Mapping[str, Any]


def render_path(
    diagnosis: Diagnosis, *, reference: Values, evidence: Values, ascii: bool = False
) -> str:
    """The walk: per question its answer and what decided it.

    Args:
        diagnosis: as diagnosed.
        reference: column → value of the baseline, printed ``before → now`` where it is known.
        evidence: column → value of the whole row: how long its window is.
        ascii: spell everything in ASCII.
    """
    seconds = evidence.get("duration_seconds")
    out = ["path" if not seconds else f"path     means of the last {duration(seconds)}"]
    printed: set[str] = set()
    for step in diagnosis.path:
        facts = [text for text in _facts(step, reference) if text not in printed]
        printed.update(facts)
        out += _step(step.question, step.answer, facts, ascii)
    ended = f" leaf {diagnosis.leaf}" + (f", cause {diagnosis.cause}" if diagnosis.cause else "")
    if diagnosis.leaf == "undetermined" and diagnosis.missing:
        ended += f": missing {', '.join(map(clean, diagnosis.missing))}"
    elif diagnosis.meaning:
        ended += f": {clean(diagnosis.meaning)}"
    out += wrap(spell(ended, ascii), 80, _INDENT)
    return "\n".join(out)


def short_reason(reason: str) -> str:
    """Why, without how to mend it: ``no reference`` of ``no reference (--baseline FROM..TO)``."""
    return clean(reason).split(" (")[0]


def _step(question: str, answer: str, facts: list[str], ascii: bool) -> list[str]:
    head = f" {pad(spell(clean(question), ascii), _QUESTION_WIDTH)} {answer}"
    line = spell(f"{head:<{_QUESTION_WIDTH + 5}}  {'; '.join(facts)}".rstrip(), ascii)
    if columns(line) <= 80:
        return [line]
    return [*wrap(head, 80, " "), *wrap(spell(_INDENT + "; ".join(facts), ascii), 80, _INDENT)]


def _facts(step: Any, reference: Values) -> Iterator[str]:
    """What a question was decided on: its known values, or why there is none."""
    reason = step.reason or ""
    if reason and step.answer in ("unknown", "not asked"):
        yield short_reason(reason)
    elif reason and step.answer == "no":
        yield f"not asked: {clean(reason)}"
    for column, amount in step.evidence.items():
        if amount is None or (column in _QUIET_AT_ZERO and amount == 0):
            continue
        if column == "preemptions_per_second":
            yield preemptions(amount)
        elif column.endswith("_tokens_mean_ratio") and column[:-6] in step.evidence:
            continue  # the mean from → to says it
        else:
            yield evidence_text(column, amount, before=reference.get(column))


def render_limits(
    limits: Sequence[Limit],
    *,
    waiting: float | None = None,
    preempted: float | None = None,
    ascii: bool = False,
) -> str:
    """The limits model as a table: limit, room for, in use, left.

    Args:
        limits: as diagnosed.
        waiting: mean waiting requests, printed beside the limit that is full.
        preempted: preemptions per second, printed beside the KV cache.
        ascii: spell everything in ASCII.
    """
    table: list[tuple[str, ...]] = [("limit", "room for", "in use", "left", "")]
    for limit in limits:
        name = LIMIT_WORDS.get(limit.name, clean(limit.name))
        sizes = (limit.allows_requests, limit.in_flight_requests)
        cells = ["unknown" if size is None else count(size) for size in sizes]
        room = "unknown" if limit.margin_ratio is None else percent(limit.margin_ratio)
        notes = []
        if limit.binds:
            allows, running = sizes
            has_cap = limit.name == "max_num_seqs" and allows is not None and running is not None
            # the mean of the scrapes in which it was full may be of two kinds
            at_times = has_cap and not near_cap(running or 0.0, allows or 0.0)
            room = "0 %" if not at_times else room
            queue = "" if waiting is None else f"; {count(waiting)} requests queue"
            notes.append(f"{'full at times' if at_times else 'full'}{queue}")
        elif limit.binds is None and not limit.note:
            notes.append("nobody knows whether it is full")
        if limit.note:
            notes.append(clean(limit.note))
        if limit.name == "kv_cache" and preempted is not None:
            notes.append(preemptions(preempted))
        table.append((f" {name}", *cells, room, "; ".join(notes)))
    sizes_of = [max(columns(row[at]) for row in table) for at in range(4)]
    out = []
    for name, *figures, remark in table:
        aligned = "  ".join(f"{text:>{sizes_of[at]}}" for at, text in enumerate(figures, start=1))
        head = f"{pad(name, sizes_of[0])}  {aligned}"
        out += wrap(spell(f"{head}  {remark}".rstrip(), ascii), 80, " " * (len(head) + 2))
    return "\n".join(out)
