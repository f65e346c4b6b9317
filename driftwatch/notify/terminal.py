"""The page in a terminal: 80 columns, answer first. Pure.

Colour adds no information; without UTF-8 every sign has an ASCII spelling.
"""

from __future__ import annotations

from collections.abc import Iterator

from driftwatch.notify.headline import marked, next_command, signature
from driftwatch.notify.layout import paint, wrap
from driftwatch.notify.page import Line, Page
from driftwatch.numbers import clean, moment

_WIDTH = 80
_LABEL_WIDTH = 9
_DATED = ("Since", "Began", "Problem")  # lines whose time has a date
_OPEN = ("firing", "updated")  # events that may need an action


def render(
    page: Page,
    *,
    colour: bool = False,
    options: str | None = "",
    mark: bool = False,
    stored: bool = True,
) -> str:
    """The whole page as text without a final newline.

    A command stays on one line, for copying. ``options``: appended to commands, with a leading
    blank; None = no command can read the incident; ``mark``: put Slack's state mark before line 1;
    ``stored``: print ack and silence, which need a stored incident.
    """
    indent = " " * _LABEL_WIDTH
    top = marked(page, page.summary) if mark else page.summary
    out = wrap(top, _WIDTH, " ")
    for text in (_line(page, line) for line in page.lines):
        out += wrap(text, _WIDTH, indent)
    commands = list(_commands(page, options, stored))
    return paint("\n".join([*out, "", *commands] if commands else out), colour)


def _line(page: Page, line: Line) -> str:
    # a terminal keeps its text for days, so the first time on the page has a date
    dated = None if line.label in _DATED else page.times.started_at.date()
    stamp = "" if line.at is None else moment(line.at, dated)
    return f"{line.label:<{_LABEL_WIDTH - 1}} {': '.join(filter(None, (stamp, line.text)))}"


def _commands(page: Page, options: str | None, stored: bool) -> Iterator[str]:
    links = page.links
    if not page.test:
        yield f"id:      {signature(page)}"
    if page.event in _OPEN and not page.test and stored and options is not None:
        yield f"ack:     {clean((links.ack or '') + options)}"
        yield f"silence: {clean((links.silence or '') + options)}"
    if options is not None and (command := next_command(page)):
        yield f"next:    {command}{clean(options)}"
    if links.runbook:
        yield f"runbook: {links.runbook}"
