"""Comments that switch a lint off, at a rule, node or leaf, or for a file.

```yaml
# driftwatch file/disable no-runbook
groups:
  - name: mine
    rules:
      # driftwatch disable no-source, unit
      # driftwatch snooze 2026-12-31 demand-alone
      - alert: QueueLong
```

A snooze holds through its day (UTC) and is a problem afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from driftwatch.errors import Problem
from driftwatch.rulebook.book import Reading
from driftwatch.rulebook.lint_codes import LINTS
from driftwatch.rulebook.rules import ReadRule
from driftwatch.yaml_models import near
from driftwatch.yaml_positions import Entries, Items, Node, Place, Scalar, YamlFile

_COMMENT = re.compile(r"(?:^|\s)#\s*driftwatch:?\s+(?=\S)(.*?)\s*$")
_ANY = re.compile(r"(?:^|\s)#\s*\w")
_VERB = re.compile(r"(file/)?(disable|snooze)(?:\s+(\d{4}-\d{2}-\d{2}))?\s+(\S.*)")
_FORMS = "# driftwatch disable CODE, # driftwatch snooze 2026-12-31 CODE, file/disable CODE"


@dataclass(frozen=True, slots=True)
class Part:
    """A rule, node or leaf: the lines that are its own, 1-based, both ends included."""

    path: str
    first: int  # with the comments above it
    last: int


@dataclass(frozen=True, slots=True)
class _Switch:
    """One code of a comment that switches it off."""

    code: str
    part: Part | None  # None = the whole file
    path: str

    def covers(self, problem: Problem) -> bool:
        if problem.code != self.code or problem.path != self.path:
            return False
        line = problem.line
        return self.part is None or (line is not None and self.part.first <= line <= self.part.last)


def is_explained(rule: ReadRule) -> bool:
    """Whether a comment that people wrote for people stands at the rule."""
    part = part_of(rule.file, rule.entries.place.line, rule.entries)
    lines = rule.file.lines[part.first - 1 : part.last]
    return any(_ANY.search(line) and not _COMMENT.search(line) for line in lines)


def parts_of(reading: Reading) -> tuple[Part, ...]:
    """Every rule, node and leaf of the files."""
    parts = [part_of(one.file, one.entries.place.line, one.entries) for one in reading.rules]
    for tree in reading.trees:
        for key in ("nodes", "leaves"):
            section = tree.entries.entries.get(key, (None, None))[1]
            for place, node in section.entries.values() if isinstance(section, Entries) else ():
                parts.append(part_of(tree.file, place.line, node))
    return tuple(parts)


def with_comments(
    problems: Sequence[Problem], reading: Reading, parts: Sequence[Part], today: date
) -> list[Problem]:
    """The problems that no comment switches off, and those of the comments themselves.

    Args:
        problems: of lints; what makes a file unreadable cannot be switched off.
        today: UTC; a snooze until an earlier day is over.
    """
    switches: list[_Switch] = []
    wrong: list[Problem] = []
    for file in reading.files:
        own = [part for part in parts if part.path == file.path]
        for switch in _switches(file, own, today):
            if isinstance(switch, Problem):
                wrong.append(switch)
            else:
                switches.append(switch)
    by_code: dict[str, list[_Switch]] = {}
    for switch in switches:
        by_code.setdefault(switch.code, []).append(switch)
    open_problems = [p for p in problems if not any(s.covers(p) for s in by_code.get(p.code, ()))]
    return [*open_problems, *wrong]


def _switches(file: YamlFile, parts: Sequence[Part], today: date) -> Iterator[_Switch | Problem]:
    """What the comments of a file say."""
    for number, line in enumerate(file.lines, 1):
        if "driftwatch" not in line or (comment := _COMMENT.search(line)) is None:
            continue
        if not comment[1].startswith(("disable", "snooze", "file/")):
            continue  # a sentence about driftwatch
        place = Place(number, comment.start(1) + 1, len(comment[1]))
        match = _VERB.fullmatch(comment[1])
        if match is None or (match[2] == "snooze") is (match[3] is None):
            message = "this comment switches nothing off"
            yield file.problem(place, "comment", message, f"write {_FORMS}", "error")
            continue
        part = next((p for p in parts if p.first <= number <= p.last), None)
        if not match[1] and part is None:
            message = "this comment stands at no rule, node or leaf"
            help_text = f"put it on the line above one, or write file/{match[2]}"
            yield file.problem(place, "comment", message, help_text, "error")
            continue
        try:
            is_over = match[3] is not None and date.fromisoformat(match[3]) < today
        except ValueError:
            message = f"{match[3]} is no day"
            yield file.problem(place, "comment", message, "write 2026-12-31", "error")
            continue
        # a reason may follow the codes, after a colon or a dash
        codes = re.split(r"\s*(?::|\s-|\s—|\s#)\s*", match[4])[0]
        for code in re.split(r"[,\s]+", codes.strip(" ,")):
            at = Place(number, place.column + comment[1].index(code), len(code))
            if code not in LINTS:
                yield _unknown(file, at, code)
            elif is_over:
                message = f"the snooze of {code} ended on {match[3]}"
                help_text = "mend the problem, or choose another day"
                yield file.problem(at, "snooze-over", message, help_text, "warning")
            else:
                yield _Switch(code, None if match[1] else part, file.path)


def _unknown(file: YamlFile, place: Place, code: str) -> Problem:
    hint = near(code, LINTS) or "only lints can be switched off: docs/sre/checks.md"
    return file.problem(place, "unknown-code", f"there is no lint {code}", hint, "error")


def part_of(file: YamlFile, first: int, node: Node) -> Part:
    """The lines of a mapping, and the comment lines right above it."""
    while first > 1 and file.lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return Part(file.path, first, max(_last_line(node), first))


def _last_line(node: Node) -> int:
    match node:
        case Entries():
            inner = [max(place.line, _last_line(one)) for place, one in node.entries.values()]
        case Items():
            inner = [_last_line(one) for one in node.items]
        case Scalar():
            return node.place.line + node.raw.rstrip().count("\n")
    return max([node.place.line, *inner])
