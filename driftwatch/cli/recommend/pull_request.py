"""The change in a file as the text of a pull request, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftwatch.cli.recommend.text import AdviceContext, basis
from driftwatch.notify.numbers import clean
from driftwatch.recommend.advice import Advice
from driftwatch.vllm_arguments.patch import Edit


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What was written, and how to present it."""

    file: str
    edits: tuple[Edit, ...]
    text: str  # Markdown

    @property
    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        edits = [
            {
                "knob": one.knob,
                "line": one.place.line,
                "column": one.place.column,
                "from": one.before,
                "to": one.after,
            }
            for one in self.edits
        ]
        return {"file": self.file, "edits": edits, "pull_request": self.text}


def pull_request(
    advice: Advice, context: AdviceContext, path: Path, edits: Sequence[Edit]
) -> PullRequest:
    """The pull request of an advised change: forecast, price, undo, what they rest on.

    It quotes no line of the file: one may hold a secret.
    """
    text = "\n".join(_lines(advice, context, path, edits))
    return PullRequest(str(path), tuple(edits), text)


def _lines(
    advice: Advice, context: AdviceContext, path: Path, edits: Sequence[Edit]
) -> Iterator[str]:
    answer = advice.recommendation
    changes = ", ".join(f"{one.knob} {one.before} → {one.after}" for one in edits)
    yield f"## {_code(context.name)}: {changes}"
    yield ""
    effect = "; ".join(answer.effect)
    for label, text in (
        ("Forecast", effect.removeprefix("forecast: ")),
        ("Why", "" if answer.why in answer.effect else answer.why),
        ("Price", "; ".join(answer.price)),
        ("Undo", f"revert this pull request{f' if {answer.wrong_if}' if answer.wrong_if else ''}"),
        ("Also", "; ".join(answer.not_cured)),
    ):
        if text:
            yield f"- **{label}**: {_escaped(text)}"
    for one in edits:
        yield f"- **File**: {_code(f'{path}:{one.place.line}')}, {one.knob}"
    if context.next_command is not None:
        yield f"- **After the restart**: {_code(context.next_command)}"
    yield ""
    yield "What the forecast rests on:"
    yield ""
    yield from ["```text", *basis(advice, context), "```"]


def _code(text: str) -> str:
    """A text from outside in which nothing means anything: no mention, link or mark-up."""
    return f"`{clean(text).replace('`', chr(39))}`"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|@])", r"\\\1", clean(text))
