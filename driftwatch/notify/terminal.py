"""The page as on-call sees it in a terminal: 80 columns, answer first. Pure.

``render`` is the whole page; ``render_path`` and ``render_limits`` are also what ``explain``
prints. Colour only repeats a word; outside UTF-8 everything has an ASCII spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from driftwatch.model import Diagnosis, Limit
from driftwatch.notify.body import Line, evidence_text, lines
from driftwatch.notify.columns import SHORT
from driftwatch.notify.layout import columns, pad, paint, spell, wrap
from driftwatch.notify.numbers import clean, count, moment, percent
from driftwatch.notify.page import diagnosis_json, limit_json
from driftwatch.notify.wording import LIMIT_WORDS, given_pool, lead, setting_change, value

_NARROWEST = 48
_SIDE_BY_SIDE = 64  # narrower than this, what stood beside stands below
_LABEL_WIDTH = 9
_QUESTION_WIDTH = 30
_ANSWER_WIDTH = len("not asked")


def render(
    page: Mapping[str, Any],
    *,
    width: int = 80,
    colour: bool = False,
    ascii: bool = False,
    next_command: str | None = None,
) -> str:
    """The whole page as text without a final newline.

    Args:
        page: the page's JSON.
        width: columns, at least 48. Commands are never broken: they are there to be copied.
        colour: colour the state words (the caller asks the terminal and ``NO_COLOR``).
        ascii: spell everything in ASCII.
        next_command: printed instead of the page's ``explain`` command.
    """
    width = max(_NARROWEST, width)
    indent = " " * _LABEL_WIDTH
    out = wrap(spell(lead(page), ascii), width, " ")
    for text in [*map(_told, lines(page)), _about(page)]:
        out += wrap(spell(text, ascii), width, indent)
    diagnosis = page["diagnosis"]
    if page["event"] == "firing" and diagnosis is not None:
        if diagnosis["path"]:
            out += ["", render_path(diagnosis, width=width, ascii=ascii)]
        if diagnosis["limits"]:
            waiting = value(page, "waiting_requests")
            table = render_limits(diagnosis["limits"], width=width, waiting=waiting, ascii=ascii)
            out += ["", table]
    commands = [spell(text, ascii) for text in _commands(page, next_command)]
    return paint("\n".join([*out, "", *commands] if commands else out), colour)


def _told(line: Line) -> str:
    # a terminal keeps its text for days: the date always stands beside the time
    stamp = "" if line.at is None else moment(line.at, None)
    return f"{line.label:<{_LABEL_WIDTH}}{'; '.join(filter(None, (stamp, line.text)))}"


def _about(page: Mapping[str, Any]) -> str:
    shown = dict(page["target"])
    told = {"model": shown.pop("model_name", None), "pool": given_pool(page)}
    told |= {k: v for k, v in shown.items() if k not in ("instance", "engine", "pool")}
    rest = "".join(f", {clean(k)} {clean(str(v))}" for k, v in told.items() if v)
    return f"{'Rule':<{_LABEL_WIDTH}}{clean(page['alert'])} ({page['severity']}){rest}"


def _commands(page: Mapping[str, Any], next_command: str | None) -> Iterator[str]:
    advised, links = page["recommendation"], page["links"]
    if page["event"] == "firing" and not page["test"]:
        if advised is not None and advised["action"] == "change":
            yield f"do:      {setting_change(advised)}"
        yield f"ack:     {clean(links['ack'])}"
        yield f"silence: {clean(links['silence'])}"
    following = next_command or links["explain"]
    if following:
        yield f"next:    {clean(following)}"
    if links["runbook"]:
        yield f"runbook: {links['runbook']}"


def render_path(
    diagnosis: Diagnosis | Mapping[str, Any],
    *,
    width: int = 80,
    reference: Mapping[str, Any] | None = None,
    colour: bool = False,
    ascii: bool = False,
) -> str:
    """The walk: a line per question with its answer and the numbers it was decided on.

    Args:
        diagnosis: as diagnosed, or as a page carries it.
        width: columns.
        reference: column → value of the reference, printed ``before → now`` where it is known.
        colour: colour the words that say trouble.
        ascii: spell everything in ASCII.
    """
    walked = diagnosis_json(diagnosis) if isinstance(diagnosis, Diagnosis) else diagnosis
    out = ["path"]
    for step in walked["path"]:
        out += _step(step, width, reference or {}, ascii)
    ended = f" leaf {walked['leaf']}" + (f", cause {walked['cause']}" if walked["cause"] else "")
    if walked["leaf"] == "undetermined" and walked["missing"]:
        ended += f": missing {', '.join(map(clean, walked['missing']))}"
    elif walked["meaning"]:
        ended += f": {clean(walked['meaning'])}"
    out += wrap(spell(ended, ascii), width, "   ")
    return paint("\n".join(out), colour)


def _step(
    step: Mapping[str, Any],
    width: int,
    reference: Mapping[str, Any],
    ascii: bool,
) -> list[str]:
    answer, told = step["answer"], _facts(step, reference)
    if width < _SIDE_BY_SIDE:
        asked = f" {clean(step['question'])} {answer}"
        rows = wrap(spell(asked, ascii), width, " ")
        return rows + wrap(spell(f"   {'; '.join(told)}", ascii), width, "   ") * bool(told)
    left = wrap(spell(clean(step["question"]), ascii), _QUESTION_WIDTH)
    start = _QUESTION_WIDTH + _ANSWER_WIDTH + 3
    right = wrap(spell("; ".join(told), ascii), max(20, width - start))
    rows = []
    for at in range(max(len(left), len(right))):
        question = left[at] if at < len(left) else ""
        fact = right[at] if at < len(right) else ""
        word = answer if at == 0 else ""
        rows.append(f" {pad(question, _QUESTION_WIDTH)} {word:<{_ANSWER_WIDTH}} {fact}".rstrip())
    return rows


def _facts(step: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """What a question was decided on: numbers first where it was answered, else the reason."""
    answer, reason = step["answer"], clean(step["reason"] or "")
    facts = []
    for column, found in step["evidence"].items():
        said = answer in ("unknown", "not asked") or SHORT.get(column, column) in reason
        if found is None and said:
            continue  # the reason says it once
        if answer == "yes" and isinstance(found, int | float) and found == 0:
            continue  # one of several ways to a yes, and not the one that was taken
        facts.append(evidence_text(column, found, before=reference.get(column)))
    if not reason:
        return facts
    return [*facts, f"not asked: {reason}"] if answer in ("yes", "no") else [reason, *facts]


def render_limits(
    limits: Sequence[Limit | Mapping[str, Any]],
    *,
    width: int = 80,
    waiting: float | None = None,
    colour: bool = False,
    ascii: bool = False,
) -> str:
    """The limits model as a table: limit, allows, in flight, margin.

    Args:
        limits: as diagnosed, or as a page carries them.
        width: columns.
        waiting: mean waiting requests, printed beside the limit that binds.
        colour: colour the words that say trouble.
        ascii: spell everything in ASCII.
    """
    table: list[tuple[str, ...]] = [("limit", "allows", "in flight", "margin", "")]
    for limit in limits:
        row = limit_json(limit) if isinstance(limit, Limit) else limit
        name = LIMIT_WORDS.get(row["name"], clean(row["name"]))
        cells = [
            "unknown" if row[key] is None else count(row[key])
            for key in ("allows_requests", "in_flight_requests")
        ]
        margin = row["margin_ratio"]
        said = []
        if row["binds"] is None and not row["note"]:
            said.append("binds: unknown")
        elif row["binds"]:
            said.append("BINDS" if waiting is None else f"BINDS, {count(waiting)} waiting")
        if row["note"]:
            said.append(clean(row["note"]))
        table.append(
            (f" {name}", *cells, "unknown" if margin is None else percent(margin), "; ".join(said))
        )
    sizes = [max(columns(row[at]) for row in table) for at in range(4)]
    out = []
    for name, *figures, remark in table:
        aligned = "  ".join(f"{text:>{sizes[at]}}" for at, text in enumerate(figures, start=1))
        head = f"{pad(name, sizes[0])}  {aligned}"
        if width < _SIDE_BY_SIDE and remark:
            out += [head, *wrap(spell(f"   {remark}", ascii), width, "   ")]
            continue
        out += wrap(spell(f"{head}  {remark}".rstrip(), ascii), width, " " * (len(head) + 2))
    return paint("\n".join(out), colour)
