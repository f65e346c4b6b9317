"""Everything that is wrong with a set of rule and tree files: the reader's problems and lints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwatch.errors import Problem
from driftwatch.installation import shipped
from driftwatch.model import Severity
from driftwatch.numbers import plural
from driftwatch.rulebook.book import Reading, is_shipped, read_rulebook
from driftwatch.rulebook.lint_conditions import (
    Variant,
    condition_problems,
    problem,
    tree_problems,
    variants_of,
)  # fmt: skip
from driftwatch.rulebook.overrides import ReadOverride
from driftwatch.rulebook.rules import Rule, pool_pattern
from driftwatch.settings import Settings
from driftwatch.settings.problems import without_secrets
from driftwatch.yaml_models import place_of
from driftwatch.yaml_positions import Entries

MINUTE_SECONDS, DAY_SECONDS = 60.0, 86_400.0
# codes of problems with a name that a file which is no YAML may hold
_NAMES = frozenset(("unknown-alert", "unknown-tree", "unknown-node", "unreachable"))
_ADDRESS = re.compile(r"https?://[^/?#:@ <>|\"'`][^ <>|\"'`]*", re.I)
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_NAME_IN_BRACES = re.compile(r"\{[a-z]\w*\}")


@dataclass(frozen=True, slots=True)
class Checked:
    """A set of files as checked."""

    problems: tuple[Problem, ...] = ()  # by file, line and column
    files: tuple[str, ...] = ()  # that were read, as problems name them
    rules: int = 0  # how many they hold, readable or not
    shipped: tuple[int, int] = (0, 0)  # how many of the files and of the rules are driftwatch's own
    off: int = 0  # how many of the rules are off everywhere
    unchecked: bool = False  # rules name receivers, and there is no configuration to hold them to


def check_rulebook(paths: Sequence[Path] = (), *, configured: Settings | None = None) -> Checked:
    """Read rule and tree files and lint them; arguments as of :func:`book.read_rulebook`."""
    reading = read_rulebook(paths, configured=configured)
    problems = [*reading.problems, *_lints(reading, configured)]
    order = {file.path: number for number, file in enumerate(reading.files)}
    problems.sort(key=lambda p: (order.get(p.path, -1), p.line or 0, p.column or 0))
    if any(one.code == "yaml" for one in problems):
        problems = [one for one in problems if one.code not in _NAMES]
    names_receivers = any(rule.receivers for rule in reading.book.rules)
    own = set(filter(is_shipped, order))
    return Checked(
        problems=tuple(problems),
        files=tuple(order),
        rules=len(reading.rules),
        shipped=(len(own), sum(one.file.path in own for one in reading.rules)),
        off=sum(not rule.is_evaluated for rule in reading.book.rules),
        unchecked=configured is None and names_receivers,
    )


def _lints(reading: Reading, configured: Settings | None) -> Iterator[Problem]:
    """Lints of the rules and trees, as far as these could be read."""
    of_every_rule = configured is not None and configured.rules.runbook is not None
    are_shipped = {file.path: _is_like_shipped(file.path) for file in reading.files}
    for one in variants_of(reading):
        found = [*condition_problems(one), *_times(one)]
        if one.is_rule:
            found += [*_summary(one), *_templates(one)]
            if not of_every_rule and not are_shipped[one.file.path]:
                found += _no_runbook(one)
            found += _runbook_address(one)
        yield from found if one.is_rule else map(without_secrets, found)
    if configured is not None and configured.receivers:
        yield from _unrouted(reading, configured)
    overrides = [one for one in reading.overrides if one.is_whole]
    yield from map(without_secrets, _shadowed(overrides))
    yield from map(without_secrets, _without_effect(overrides, reading.book.rules))
    for tree in reading.trees:
        yield from tree_problems(tree)


def _is_like_shipped(name: str) -> bool:
    """A file of the installation, whose runbook is docs/oncall, or the same text elsewhere."""
    path = Path(name)
    twin = shipped("rules") / path.name
    is_same = path.is_file() and twin.is_file() and path.read_bytes() == twin.read_bytes()
    return is_shipped(name) or is_same


def _times(one: Variant) -> Iterator[Problem]:
    """`for` and `keep_firing_for` are counted in minutes; over a day hardly any condition holds."""
    if "for" in one.entries.entries and one.rule.for_seconds > DAY_SECONDS:
        days = one.rule.for_seconds / DAY_SECONDS
        message = f"the rule fires after {days:,.3g} days in which every judged minute is true"
        help_text = "read a column that covers days, such as one in _14d"
        yield problem(one.file, one.place("for"), "for-long", message, help_text)
    times = {"for": one.rule.for_seconds, "keep_firing_for": one.rule.keep_firing_for_seconds}
    for key, seconds in times.items():
        if key in one.entries.entries and seconds % MINUTE_SECONDS:
            written = getattr(one.entries.entries[key][1], "raw", "")
            minutes = int(seconds // MINUTE_SECONDS) + 1
            message = f"{key}: {written} counts as {minutes} min"
            help_text = f"driftwatch counts whole minutes: write {minutes}m"
            yield problem(one.file, one.place(key), "for-rounded", message, help_text)


def _summary(one: Variant) -> Iterator[Problem]:
    """A rule whose page cannot say in line 1 what is wrong."""
    if not one.says_what_is_wrong and not one.rule.annotations.get("summary", "").strip():
        message = "no summary: line 1 of the page does not say what is wrong"
        help_text = "annotations: {summary: more than 20 requests wait}"
        yield problem(one.file, one.place("alert"), "no-summary", message, help_text)


def _templates(one: Variant) -> Iterator[Problem]:
    """Templates in texts that are printed as they are."""
    for name, text in one.rule.annotations.items():
        template = _TEMPLATE.search(text)
        if template is None and name == "summary":
            template = _NAME_IN_BRACES.search(text)
        if template is not None:
            message = f"no page fills {template.group()} in: templates stand under page:"
            help_text = 'write page: {says: ["{waiting_requests} requests wait"]}'
            place = one.place("annotations", name)
            yield problem(one.file, place, "template", message, help_text)


def _no_runbook(one: Variant) -> Iterator[Problem]:
    """A rule that wakes somebody and has no runbook."""
    rule = one.rule
    if rule.severity == "page" and rule.enabled and "runbook_url" not in rule.annotations:
        message = "this rule wakes somebody and links no runbook"
        own = "annotations: {runbook_url: https://…}"
        help_text = f"{own}, or of all rules rules.runbook in driftwatch.yaml"
        yield problem(one.file, one.place("alert"), "no-runbook", message, help_text)


def _runbook_address(one: Variant) -> Iterator[Problem]:
    """An address that no page links: :func:`notify.page.http_url` refuses it, or it has no host."""
    url = one.rule.annotations.get("runbook_url")
    if url is not None and not (url.isprintable() and _ADDRESS.fullmatch(url)):
        place = one.place("annotations", "runbook_url")
        message = f"'{url}' is no http or https address, so no page links it"
        yield problem(one.file, place, "runbook-url", message, "runbook_url: https://…")


def _without_effect(overrides: Sequence[ReadOverride], rules: Sequence[Rule]) -> Iterator[Problem]:
    """Overrides of rules that are off, or that say what the rules say already."""
    before = {rule.id: rule.model_copy(update={"overrides": ()}) for rule in rules}
    for one in overrides:
        pairs = [(before[rule.id], rule) for rule in one.rules]
        if not pairs or any((a.enabled or b.enabled) and a != b for a, b in pairs):
            continue
        is_off = not any(rule.enabled for rule in one.rules)
        why = "the rule is off" if is_off else "the rule says the same"
        help_text = "add enabled: true, or leave the override out" if is_off else "leave it out"
        message = f"this override of {one.override.alert} changes nothing: {why}"
        yield problem(one.file, place_of(one.entries, ("alert",)), "no-effect", message, help_text)


def _shadowed(overrides: Sequence[ReadOverride]) -> Iterator[Problem]:
    """Overrides whose pools earlier overrides of the same rules cover."""
    earlier: dict[str, dict[str, int]] = {}  # rule id → pools, each with the line of its override
    for one in overrides:
        names = one.override.pools
        line = place_of(one.entries, ("alert",)).line
        # as a text, a later * can only be part of what an earlier * stands for
        covers = [
            next((e for e in earlier.get(rule.id, ()) if re.match(pool_pattern([e]), name)), None)
            for rule in one.rules
            for name in names
        ]
        if covers and None not in covers:
            cover = covers[0] or ""
            above = earlier[one.rules[0].id][cover]
            whole = "every pool" if cover == "*" else cover
            message = f"this override never counts: the one of line {above} is for {whole}"
            help_text = "leave one of the two out"
            if cover not in names:
                help_text = f"put this one above line {above}: the first that fits counts"
            key = ("pools",) if "pools" in one.entries.entries else ("alert",)
            yield problem(
                one.file, place_of(one.entries, key, to_key=True), "shadowed", message, help_text
            )
        for rule in one.rules:
            for name in names:
                earlier.setdefault(rule.id, {}).setdefault(name, line)


def _unrouted(reading: Reading, configured: Settings) -> Iterator[Problem]:
    """Severities that no receiver takes; rules and pools whose receivers do not take one."""
    takes = {one.name: one.severities for one in configured.receivers}
    taken = {severity for severities in takes.values() for severity in severities}
    root = None if configured.file is None else configured.file.root
    variants = [one for rule in reading.book.rules for one in rule.variants if one.enabled]
    for severity in ("page", "ticket"):
        alerts = dict.fromkeys(one.alert for one in variants if one.severity == severity)
        if not alerts or configured.file is None or not isinstance(root, Entries):
            continue
        if severity not in taken:
            first, *more = alerts
            those = f"{first} and {plural(len(more), 'alert')} more" if more else first
            message = f"no receiver takes {severity}s: nobody hears of {those}"
            help_text = f"severities: [{severity}, …] of a receiver"
            place = place_of(root, ("receivers",), to_key=True)
            one = problem(configured.file, place, "unrouted", message, help_text)
            yield without_secrets(one)
            continue
        for number, pool in enumerate(configured.pools):
            place = place_of(root, ("pools", number, "receivers"))
            for text in _untaken(pool.receivers or (), severity, takes):
                yield without_secrets(problem(configured.file, place, "unrouted", *text))
    for read in reading.rules:
        rule = read.rule
        if rule is not None and rule.enabled:
            place = place_of(read.entries, ("receivers",))
            for text in _untaken(rule.receivers, rule.severity, takes):
                yield problem(read.file, place, "unrouted", *text)


def _untaken(
    receivers: Sequence[str], severity: Severity, takes: Mapping[str, Sequence[Severity]]
) -> Iterator[tuple[str, str]]:
    """Message and help where none of the receivers of a rule or pool takes the severity.

    ``takes``: receiver → severities.
    """
    named = [one for one in receivers if one in takes]
    if named and not any(severity in takes[one] for one in named):
        takers = "none of them takes" if len(named) > 1 else f"{named[0]} does not take"
        others = ", ".join(one for one, those in takes.items() if severity in those)
        where = f": {others}" if others else ""
        message = f"{takers} {severity}s: they go where they would without this line{where}"
        yield message, f"add {severity} to the severities of {named[0]}"
