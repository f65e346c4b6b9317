"""Conditions of rules and trees where they stand, and the places of their parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType, exp

from driftwatch.condition import Condition
from driftwatch.condition_text import read_tokens
from driftwatch.errors import Problem
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.book import Reading
from driftwatch.rulebook.lint_codes import LINTS
from driftwatch.rulebook.rules import Rule
from driftwatch.yaml_models import place_of
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile

CONDITION_KEYS = {"when": "when", "given": "precondition", "until": "until"}
_ENDS = (TokenType.AND, TokenType.OR, TokenType.NOT)


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
        """Where a comparison of it stands; the whole text where sqlglot kept no position."""
        scalar = self.entries.entries[self.key][1]
        starts = [p.meta["start"] for p in node.walk() if isinstance(p.meta.get("start"), int)]
        if not starts or not isinstance(scalar, Scalar):
            return self.place
        text = self.condition.text
        start, end = _span(text, min(starts))
        line = text.count("\n", 0, start) + 1
        column = start - (text.rfind("\n", 0, start) + 1) + 1
        end = min(end, f"{text}\n".index("\n", start))
        return self.file.inside(scalar, line, column, end - start)

    def written(self, node: exp.Expr) -> str:
        """A comparison as its author wrote it."""
        starts = [p.meta["start"] for p in node.walk() if isinstance(p.meta.get("start"), int)]
        text = self.condition.text
        start, end = _span(text, min(starts)) if starts else (0, len(text))
        return " ".join(text[start:end].split())


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


def _span(text: str, inside: int) -> tuple[int, int]:
    """From where to where the comparison around a position goes: between AND, OR and NOT."""
    tokens = read_tokens(text, BY_NAME)
    at = next(i for i, token in enumerate(tokens) if token.start <= inside <= token.end)
    first = last = at
    depth = 0
    while first > 0:
        kind = tokens[first - 1].token_type
        if kind is TokenType.R_PAREN:
            depth += 1
        elif kind is TokenType.L_PAREN:
            depth -= 1
        if depth < 0 or (depth == 0 and kind in _ENDS):
            break
        first -= 1
    depth = 0
    between = False
    while last + 1 < len(tokens):
        kind = tokens[last + 1].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth < 0:
            break
        if depth == 0 and kind in (TokenType.AND, TokenType.OR):
            if not between or kind is TokenType.OR:
                break
            between = False
        elif kind is TokenType.BETWEEN:
            between = True
        last += 1
    return tokens[first].start, tokens[last].end + 1
