"""What stands beside an open incident in a list: who has it, what is silent, what is not sent."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from driftwatch.cli.output import encodable
from driftwatch.notify.layout import wrap
from driftwatch.notify.numbers import clean, moment

if TYPE_CHECKING:
    from driftwatch.model import Incident
    from driftwatch.store import Store


_WIDTH = 80
_INDENT = " " * 10  # under the state


def notes_of(incidents: Iterable[Incident], store: Store, now: datetime) -> dict[str, str]:
    """Firing incident → its note; those of which nothing is to be noted are not among them."""
    from driftwatch.incidents.silence import labels_of, matches

    undelivered: Counter[str] = Counter()
    for record in store.outbox_records():
        undelivered[record.subject] += record.is_pending or record.is_dead
    silences, notes = store.silences(now), {}
    for one in incidents:
        if one.state != "firing":
            continue
        ends = [silence.until for silence in silences if matches(silence, labels_of(one))]
        parts = [
            one.acknowledged_by or "",
            f"silenced until {moment(max(ends), now.date())}" if ends else "",
            f"{undelivered[one.id]} undelivered" if undelivered[one.id] else "",
        ]
        if text := "; ".join(filter(None, parts)):
            notes[one.id] = text
    return notes


def with_notes(rows: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    """The rows of a table with its header, each note below its row; piped the rows have them."""
    if not sys.stdout.isatty():
        yield from rows
        return
    for row, note in zip(rows, ["", *notes], strict=True) if rows else ():
        yield row
        if note:
            yield from wrap(encodable(_INDENT + clean(note)), _WIDTH, _INDENT)
