"""Conditions of rules and trees where they stand, and the places of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from driftwatch.condition import Condition
from driftwatch.errors import Problem
from driftwatch.rulebook.book import Reading
from driftwatch.rulebook.rules import Rule
from driftwatch.yaml_models import place_of
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile

# the lints, each with a heading of its name in docs/sre/checks.md
LINTS: Mapping[str, Literal["error", "warning"]] = {
    # conditions
    "never-holds": "error",
    "always-holds": "error",
    "unit": "warning",
    "until-contradicts": "error",
    # times
    "for-rounded": "warning",
    # overrides
    "shadowed": "warning",
    "no-effect": "warning",
    # who hears of it
    "unrouted": "warning",
    # what on-call reads
    "no-summary": "warning",
    "template": "error",
    "runbook-url": "error",
    "no-runbook": "warning",
    # trees
    "unknown-knob": "error",
    "unreachable-leaf": "error",
}
CONDITION_KEYS = {"when": "when", "given": "precondition", "until": "until"}


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition as written."""

    file: YamlFile
    entries: Entries  # the rule, override or node
    key: str  # when, given or until
    condition: Condition

    @property
    def place(self) -> Place:
        """Where its text begins."""
        return place_of(self.entries, (self.key,))

    @property
    def whole(self) -> Place:
        """Its first line, also of a block."""
        scalar = self.entries.entries[self.key][1]
        if not isinstance(scalar, Scalar):
            return self.place
        return self.file.inside(scalar, 1, 1, len(self.condition.text.split("\n")[0]))

    def part(self, node: exp.Expr) -> Place:
        """Where a comparison of it begins, on that line."""
        scalar, (start, end), text = self.entries.entries[self.key][1], self._span(node), self.text
        if not isinstance(scalar, Scalar):
            return self.place
        line = text.count("\n", 0, start) + 1
        column = start - (text.rfind("\n", 0, start) + 1) + 1
        end = min(end, f"{text}\n".index("\n", start))
        return self.file.inside(scalar, line, column, end - start)

    def written(self, node: exp.Expr) -> str:
        """A comparison as its author wrote it."""
        start, end = self._span(node)
        return " ".join(self.text[start:end].split())

    @property
    def text(self) -> str:
        """The condition as written."""
        return self.condition.text

    def _span(self, node: exp.Expr) -> tuple[int, int]:
        """From its first column or constant to its last; the whole text where none has a place."""
        meta = [one.meta for one in node.walk() if isinstance(one.meta.get("start"), int)]
        starts, ends = [one["start"] for one in meta], [one["end"] + 1 for one in meta]
        start = min(starts, default=0)
        if node.find(exp.Neg) and (before := self.text[:start].rstrip()).endswith("-"):
            start = len(before) - 1
        return start, max(ends, default=len(self.text))


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule, or an override of it, where it stands."""

    file: YamlFile
    entries: Entries
    rule: Rule
    is_rule: bool = True  # it is no override

    def place(self, *key: str) -> Place:
        """Where the value of a key stands."""
        return place_of(self.entries, key)

    @property
    def clauses(self) -> Iterator[Clause]:
        """The conditions that it writes down."""
        for key, field in CONDITION_KEYS.items():
            condition = getattr(self.rule, field)
            if condition is not None and key in self.entries.entries:
                yield Clause(self.file, self.entries, key, condition)


def variants_of(reading: Reading) -> Iterator[Variant]:
    """Every rule, or what of it could be read; of an override one of the rules that it makes."""
    for one in reading.rules:
        if one.rule is not None:
            yield Variant(one.file, one.entries, one.rule)
        elif one.partly is not None:
            yield Variant(one.file, *one.partly)
    for made in reading.overrides:
        for rule in made.rules[:1]:
            yield Variant(made.file, made.entries, rule, is_rule=False)


def problem(
    file: YamlFile, place: Place, code: str, message: str, help_text: str | None = None
) -> Problem:
    """A lint's problem, with the severity of its code."""
    return file.problem(place, code, message, help_text, LINTS[code])
