"""The page as on-call sees it in a terminal: 80 columns, answer first. Pure.

``render`` is the whole page; ``render_limits`` and the path are also what ``explain`` prints.
Colour only repeats a word; outside UTF-8 everything has an ASCII spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from driftwatch.model import Limit
from driftwatch.notify.advice import setting_change
from driftwatch.notify.body import lines
from driftwatch.notify.layout import columns, pad, paint, spell, wrap
from driftwatch.notify.limits_text import near_cap, preemptions
from driftwatch.notify.line import Line
from driftwatch.notify.numbers import clean, count, moment, percent
from driftwatch.notify.page import limit_json
from driftwatch.notify.page_values import instant, reference_values, value
from driftwatch.notify.path import render_path
from driftwatch.notify.wording import LIMIT_WORDS, given_pool, lead, marked, waiting_requests

_NARROWEST = 48
_SIDE_BY_SIDE = 64  # narrower than this, what stood beside stands below
_LABEL_WIDTH = 9
_OPEN = ("firing", "advised")  # something may still have to be done


def render(
    page: Mapping[str, Any],
    *,
    width: int = 80,
    colour: bool = False,
    ascii: bool = False,
    next_command: str | None = None,
    mark: bool = False,
    stored: bool = True,
) -> str:
    """The whole page as text without a final newline.

    Args:
        page: the page's JSON.
        width: columns, at least 48. Commands are never broken: they are there to be copied.
        colour: colour the state words (the caller asks the terminal and ``NO_COLOR``).
        ascii: spell everything in ASCII.
        next_command: printed instead of the page's ``explain`` command.
        mark: put Slack's state mark before line 1.
        stored: a database holds the incident. Of history none does: there is nothing to
            acknowledge or to silence, and only ``next_command`` can explain it.
    """
    width = max(_NARROWEST, width)
    indent = " " * _LABEL_WIDTH
    top = marked(page, lead(page)) if mark else lead(page)
    out = wrap(spell(top, ascii), width, " ")
    for text in [*(_told(page, line) for line in lines(page)), _about(page)]:
        out += wrap(spell(text, ascii), width, indent)
    diagnosis = page["diagnosis"]
    quiet = page["event"] not in _OPEN or page["severity"] == "notice"
    if not quiet and diagnosis is not None:
        if diagnosis["path"]:
            row = {column: entry["value"] for column, entry in page["evidence"].items()}
            before = reference_values(page)
            walk = render_path(diagnosis, width=width, reference=before, evidence=row, ascii=ascii)
            out += ["", walk]
        if diagnosis["limits"]:
            table = render_limits(
                diagnosis["limits"],
                width=width,
                waiting=waiting_requests(page),
                preempted=value(page, "preemptions_per_second"),
                ascii=ascii,
            )
            out += ["", table]
    commands = [spell(text, ascii) for text in _commands(page, next_command, stored)]
    return paint("\n".join([*out, "", *commands] if commands else out), colour)


def _told(page: Mapping[str, Any], line: Line) -> str:
    # a terminal keeps its text for days, so the date stands on the page: once, at its first time
    began = instant(page, "started_at")
    dated = None if began is None or line.label == "Since" else began.date()
    stamp = "" if line.at is None else moment(line.at, dated)
    return f"{line.label:<{_LABEL_WIDTH - 1}} {'; '.join(filter(None, (stamp, line.text)))}"


def _about(page: Mapping[str, Any]) -> str:
    shown = dict(page["target"])
    told = {"model": shown.pop("model_name", None), "pool": given_pool(page)}
    told |= {k: v for k, v in shown.items() if k not in ("instance", "engine", "pool")}
    rest = "".join(f", {clean(k)} {clean(str(v))}" for k, v in told.items() if v)
    return f"{'Rule':<{_LABEL_WIDTH}}{clean(page['alert'])} ({page['severity']}){rest}"


def _commands(page: Mapping[str, Any], next_command: str | None, stored: bool) -> Iterator[str]:
    advised, links = page["recommendation"], page["links"]
    if page["event"] in _OPEN and not page["test"]:
        change = advised is not None and advised["action"] == "change"
        if change and page["severity"] != "notice":
            yield f"do:      {setting_change(advised)}"
        if stored:
            yield f"ack:     {clean(links['ack'])}"
            yield f"silence: {clean(links['silence'])}"
    following = next_command or (links["explain"] if stored else None)
    if following:
        yield f"next:    {clean(following)}"
    if links["runbook"]:
        yield f"runbook: {links['runbook']}"


def render_limits(
    limits: Sequence[Limit | Mapping[str, Any]],
    *,
    width: int = 80,
    waiting: float | None = None,
    preempted: float | None = None,
    colour: bool = False,
    ascii: bool = False,
) -> str:
    """The limits model as a table: limit, allows, in flight, margin.

    Args:
        limits: as diagnosed, or as a page carries them.
        width: columns.
        waiting: mean waiting requests, printed beside the limit that binds.
        preempted: preemptions per second, printed beside the KV cache.
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
            said.append(_remark(row))
        if row["name"] == "kv_cache" and preempted is not None:
            said.append(preemptions(preempted))
        room = "unknown" if margin is None else percent(margin)
        if row["binds"]:
            room = "full" if _is_full(row) else "at times"
        table.append((f" {name}", *cells, room, "; ".join(said)))
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


def _is_full(row: Mapping[str, Any]) -> bool:
    """Whether the mean of the scrapes in which it bound is near it: they may be of two kinds."""
    allows, running = row["allows_requests"], row["in_flight_requests"]
    known = row["name"] == "max_num_seqs" and allows is not None and running is not None
    return not known or near_cap(running, allows)


def _remark(row: Mapping[str, Any]) -> str:
    """A limit's note; that a setting is unknown stands in the row already, so why."""
    note = clean(row["note"])
    unknown = row["name"] != "kv_cache" and note == f"{clean(row['name'])} unknown"
    return "not in /metrics" if unknown else note
