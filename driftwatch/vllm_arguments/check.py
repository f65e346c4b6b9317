"""What is wrong with a command line of vLLM: flags that it does not have, values that it refuses.

Nothing is raised; every problem is added to the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftwatch.errors import Problem
from driftwatch.knobs import refusal
from driftwatch.vllm_arguments.command_line import flag_of, is_open, split
from driftwatch.vllm_arguments.flags import FIELDS, GONE, number_of
from driftwatch.yaml_positions import LINE_BREAK, Place, Scalar, YamlFile

SERVER = re.compile(r"\bvllm\s+serve\b|\bvllm\.entrypoints\.")


@dataclass(frozen=True, slots=True)
class Argument:
    """One word as vLLM gets it, and where it stands in a YAML value."""

    text: str
    scalar: Scalar
    offsets: tuple[int, ...]  # of each character of ``text`` in the value

    def place(self, start: int = 0, end: int | None = None) -> Place:
        """Where some of its characters stand in the file; all of them by default."""
        inside = self.offsets[start:end] or self.offsets[-1:] or (0,)
        before = text_of(self.scalar)[: inside[0]].split("\n")
        column, length = len(before[-1]) + 1, inside[-1] - inside[0] + 1
        return YamlFile("").inside(self.scalar, len(before), column, length)


def text_of(scalar: Scalar) -> str:
    """A value as text: ``256`` of a number."""
    return scalar.value if isinstance(scalar.value, str) else scalar.raw


def whole(scalar: Scalar) -> Argument:
    """A value that is one word."""
    text = text_of(scalar)
    return Argument(text, scalar, tuple(range(len(text))))


def commands_in(scalar: Scalar) -> Iterator[list[Argument]]:
    """The commands of a shell text."""
    for command in split(text_of(scalar)):
        yield [Argument(word.text, scalar, word.offsets) for word in command]


def names_vllm(words: Sequence[Argument]) -> bool:
    """Whether a command line starts vLLM's server."""
    return SERVER.search(" ".join(word.text for word in words)) is not None


def has_known_flag(words: Sequence[Argument]) -> bool:
    """Whether a flag stands there that driftwatch reads, or that old posts name for vLLM."""
    return any(flag_of(one.text).name in FIELDS.keys() | GONE.keys() for one in words)


def check(words: Sequence[Argument], file: YamlFile) -> None:
    """Add every problem of one command line."""
    last: dict[str, tuple[float, Place]] = {}
    for word, following in zip(words, [*words[1:], None], strict=True):
        if word.text == "--":
            break
        flag = flag_of(word.text, None if following is None else following.text)
        here = word.place(0, len(flag.written))
        if (gone := GONE.get(flag.name)) is not None:
            if gone.until is None:
                file.add(here, "no-such-flag", f"no vLLM has a flag {flag.name}", gone.instead)
            else:
                message = f"vLLM {gone.until} removed {flag.name}"
                file.add(here, "removed-flag", message, gone.instead, "warning")
        if (field := FIELDS.get(flag.name)) is None:
            continue
        if flag.attached:
            value = word.place(len(flag.written) + 1)
        else:
            value = here if following is None else following.place()
        try:
            number = number_of(flag)
        except ValueError as error:
            file.add(value, "flag-value", str(error))
            continue
        last.pop(field, None)
        if number is not None:
            last[field] = number, value
    why = refusal({field: number for field, (number, _) in last.items()})
    if why is not None:
        file.add(last["max_num_batched_tokens"][1], "flag-conflict", why)


def check_text(scalar: Scalar, file: YamlFile) -> None:
    """Add every problem of a command line, or of what follows ``vllm serve``."""
    commands = list(commands_in(scalar))
    for words in [one for one in commands if names_vllm(one)] or commands:
        check(words, file)
    text = text_of(scalar)
    if is_open(text):
        at = max(text.rfind("'"), text.rfind('"'), 0)
        place = Argument(text[at], scalar, (at,)).place()
        file.add(place, "quote", "a quote is never closed")


def line_problems(text: str, *, path: str = "--arguments") -> tuple[Problem, ...]:
    """The same of a text that stands in no file."""
    file = YamlFile(path, LINE_BREAK.split(text))
    # as a block of YAML that begins in the line before
    check_text(Scalar(Place(0, 1), text, f"|\n{text}"), file)
    return in_order(file)


def in_order(file: YamlFile) -> tuple[Problem, ...]:
    """The problems of a file, each once, in its order."""
    unique = dict.fromkeys(file.problems)
    return tuple(sorted(unique, key=lambda one: (one.line or 0, one.column or 0)))
