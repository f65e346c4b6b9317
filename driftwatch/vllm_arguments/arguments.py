"""The words of a command line, each with its place in a file, and the flags that they state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftwatch.vllm_arguments.table import Flag
from driftwatch.vllm_arguments.values import Fault
from driftwatch.yaml_positions import Place


@dataclass(frozen=True, slots=True)
class Argument:
    """One word as vLLM gets it, and how to find a part of it in the file."""

    text: str
    place: Callable[[int, int], Place]  # offset in the text, length → its place in the file

    def part(self, start: int = 0, length: int | None = None) -> Place:
        """The place of some of its characters; all of them by default."""
        return self.place(start, len(self.text) - start if length is None else length)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its place."""

    place: Place
    fault: Fault


@dataclass(frozen=True, slots=True)
class Stated:
    """A flag that a command line has."""

    flag: Flag
    word: Argument
    value: str | None  # None: it has none
    value_word: Argument | None  # the word that the value stands in
    value_start: int = 0  # where in that word
    is_off: bool = False  # ``--no-…``

    @property
    def value_place(self) -> Place:
        """Where the value stands; the flag, where it has none."""
        return self.word.part() if self.value_word is None else self.value_word.part(
            self.value_start
        )  # fmt: skip
