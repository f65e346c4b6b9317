"""The walk through the tree for a reader: question, answer, and what decided it. Pure.

A line or two a question. What did not decide is left out (unknowns among alternatives, ways to a
yes that were not taken), and nothing is said twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.model import Diagnosis
from driftwatch.notify.body import evidence_text, evidence_value
from driftwatch.notify.columns import SHORT
from driftwatch.notify.engine_words import ENGINE_WORDS
from driftwatch.notify.layout import columns, pad, paint, spell, wrap
from driftwatch.notify.limits_text import preemptions
from driftwatch.notify.numbers import change, clean, count, duration, figure, times
from driftwatch.notify.page import diagnosis_json
from driftwatch.notify.wording import LIMIT_WORDS

_QUESTION_WIDTH = 28
_INDENT = "   "

_WAIT, _SHARE_OF_TTFT = "batch_assembly_wait_10m_seconds", "queue_share_of_ttft_10m_ratio"
_BOUND = "limit_binding_share_10m_ratio"
# at rest these say nothing, whatever the answer
_QUIET_AT_ZERO = (
    "seconds_since_last_token",
    "waiting_deferred_share_10m_ratio",
    "waiting_deferred_requests",
)
# of a server without speculative decoding, and beside the value now that carries them as "before"
_OF_DRAFTS = ("tokens_per_output", "reference_tokens_per_output")
_BEFORE = ("reference_spec_decode_acceptance_ratio", "reference_tokens_per_output")
# a wait decides only where no target is known: a missed one needs no other cost
_BESIDE_A_MISSED_TARGET = (_BOUND, _WAIT, _SHARE_OF_TTFT)
_WHILE_BOUND = {
    "running_requests": "binding_running_requests",
    "waiting_requests": "binding_waiting_requests",
    "waiting_capacity_requests": "binding_waiting_requests",
}
_BOTH = ("running_requests", "waiting_requests")
_RATES = {
    "requests_per_second_ratio": "requests_per_second",
    "tokens_per_second_per_gpu_ratio": "tokens_per_second_per_gpu",
}

Values = Mapping[str, Any]


def render_path(
    diagnosis: Diagnosis | Mapping[str, Any],
    *,
    width: int = 80,
    reference: Values | None = None,
    evidence: Values | None = None,
    colour: bool = False,
    ascii: bool = False,
) -> str:
    """The walk: a line or two per question with its answer and what it was decided on.

    Args:
        diagnosis: as diagnosed, or as a page carries it.
        width: columns.
        reference: column → value of the reference, printed ``before → now`` where it is known.
        evidence: column → value of the whole row: how many scrapes, and the means while a limit
            bound.
        colour: colour the words that say trouble.
        ascii: spell everything in ASCII.
    """
    walked = diagnosis_json(diagnosis) if isinstance(diagnosis, Diagnosis) else diagnosis
    row = evidence or {}
    seen = row.get("duration_seconds")
    out = ["path" if not seen else f"path     means of the last {duration(seen)}"]
    told: set[str] = set()
    for step in walked["path"]:
        out += _step(step, width, [*_facts(step, reference or {}, row, told)], ascii)
    ended = f" leaf {walked['leaf']}" + (f", cause {walked['cause']}" if walked["cause"] else "")
    if walked["leaf"] == "undetermined" and walked["missing"]:
        ended += f": missing {', '.join(map(clean, walked['missing']))}"
    elif walked["meaning"]:
        ended += f": {clean(walked['meaning'])}"
    out += wrap(spell(ended, ascii), width, _INDENT)
    return paint("\n".join(out), colour)


def short_reason(reason: str) -> str:
    """Why, without how to mend it: ``no reference`` of ``no reference (--baseline FROM..TO)``."""
    return clean(reason).split(" (")[0]


def _step(step: Mapping[str, Any], width: int, facts: list[str], ascii: bool) -> list[str]:
    question = spell(clean(step["question"]), ascii)
    asked = f" {pad(question, _QUESTION_WIDTH)} {step['answer']}"
    if not facts:
        return wrap(asked, width, " ")
    out, line, between = [], f"{asked:<{_QUESTION_WIDTH + 5}}", "  "
    for fact in (spell(text, ascii) for text in facts):
        if columns(f"{line}{between}{fact}") <= width:
            line += between + fact
        else:  # facts are kept whole: a clause is easier to read than a full line
            *full, line = [
                *wrap(line.rstrip() if between == "  " else f"{line};", width, _INDENT),
                *wrap(f"{_INDENT}{fact}", width, _INDENT),
            ]
            out += full
        between = "; "
    return [*out, line]


def _facts(
    step: Mapping[str, Any], reference: Values, row: Values, told: set[str]
) -> Iterator[str]:
    """What a question was decided on, without what an earlier one has said."""
    answer, reason = step["answer"], step["reason"] or ""
    known = {c: v for c, v in step["evidence"].items() if not _is_quiet(c, v, step)}
    found = [*_numbers(known, reference, row, step)]
    if reason and answer in ("unknown", "not asked"):
        # a value that says why at more length is not said before itself
        whys = [w for w in _why(reason) if not any(f.startswith(w.split(": ")[-1]) for f in found)]
        found = [*whys, *found]
    elif reason and answer == "no":
        found.append(f"not asked: {clean(reason)}")
    for text in found:
        bound = text.removeprefix(f"{SHORT['binding_limit']} ")
        if bound in LIMIT_WORDS and len(found) > 1:
            continue  # the question names it
        if text not in told:
            told.add(text)
            yield text


def _is_quiet(column: str, found: Any, step: Mapping[str, Any]) -> bool:
    """Whether this value had no part in the answer."""
    if found is None or (column in _QUIET_AT_ZERO and found == 0):
        return True
    if column == "engine_kind":
        return found not in ENGINE_WORDS
    if column in _BEFORE:
        return True
    if column in _OF_DRAFTS:
        return step["evidence"].get("spec_decode_acceptance_ratio") is None
    if column == "binding_limit" and step["answer"] == "no":
        return found in LIMIT_WORDS  # said where a limit is answered yes
    if step["answer"] != "yes" or isinstance(found, str):
        return False
    if column in _BESIDE_A_MISSED_TARGET and step["evidence"].get("slo_missed") is True:
        return True
    # one of several ways to a yes, and not the one taken: shares decide from one half on
    return found == 0 or (column.endswith("_share_10m_ratio") and found < 0.5)


def _numbers(
    known: Mapping[str, Any], reference: Values, row: Values, step: Mapping[str, Any]
) -> Iterator[str]:
    rest = dict(known)
    lengths = []
    for stem in ("prompt", "generation"):
        ratio = rest.pop(f"{stem}_tokens_mean_ratio", None)
        mean = rest.pop(f"{stem}_tokens_mean", None)
        if ratio is not None or mean is not None:
            lengths.append(_length(stem, ratio, mean, reference.get(f"{stem}_tokens_mean")))
    if lengths:
        n = rest.pop("finished_requests", None)
        yield "; ".join(lengths) + ("" if n is None else f", n {count(n)}")
    about_a_limit = not {_BOUND, "binding_limit"}.isdisjoint(step["evidence"])
    both = about_a_limit and all(c in rest and row.get(_WHILE_BOUND[c]) is not None for c in _BOTH)
    share = rest.pop(_SHARE_OF_TTFT, None) if _WAIT in rest else None
    paired = {of: ratio for ratio, of in _RATES.items() if ratio in rest and of in rest}
    for column, found in rest.items():
        if column in paired or (both and column == "waiting_requests"):
            continue  # stands beside another
        text = evidence_text(column, found, before=reference.get(column))
        if (of := _RATES.get(column)) in rest:
            now, before = evidence_value(str(of), rest[of]), reference.get(str(of))
            inside = now if before is None else f"{figure(before)} → {now}"
            text = f"{SHORT[column]} {change(found)} ({inside})"
        elif column == _WAIT and share is not None:
            text += f" ({evidence_value(_SHARE_OF_TTFT, share)} of TTFT)"
        elif column == _BOUND and row.get("scrapes_10m"):
            text = text.replace("of scrapes", f"of {count(row['scrapes_10m'])} scrapes")
        elif column == "preemptions_per_second":
            text = preemptions(found)
        elif column == "max_num_seqs" and row.get("max_num_seqs_inferred"):
            text += " (inferred)"
        elif both and column == "running_requests":
            running, waits = (count(row[_WHILE_BOUND[c]]) for c in _BOTH)
            text = f"{running} running, {waits} waiting while it bound"
        elif about_a_limit and row.get(_WHILE_BOUND.get(column, "")) is not None:
            text = evidence_text(_WHILE_BOUND[column], row[_WHILE_BOUND[column]])
        yield text


def _length(stem: str, ratio: float | None, mean: float | None, before: Any) -> str:
    """``prompts ×2.33 (55.0 → 128)``."""
    if ratio is None:
        return f"{stem} tokens " + ("unknown" if mean is None else figure(mean))
    moved = f"{stem}s {times(ratio, 3)}"
    if mean is None:
        return moved
    now = figure(mean)
    return f"{moved} (mean {now})" if before is None else f"{moved} ({figure(before)} → {now})"


def _why(reason: str) -> Iterator[str]:
    """A reason, or one per column that is missing; the same one once, and not how to mend it."""
    parts = re.split(r"; (?=\w+: )", clean(reason).removeprefix("unknown: "))
    for part in parts:
        column, colon, why = part.partition(": ")
        if not colon or column not in BY_NAME:
            yield short_reason(part)
        elif why.startswith("no reference"):
            yield short_reason(why)
        else:
            name = SHORT.get(column, column)
            name = column if "{}" in name else name.removesuffix(":")
            yield f"{name}: {short_reason(why)}"
