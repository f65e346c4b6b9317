"""Lints of a rule's other keys: times, and what on-call reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from driftwatch.errors import Problem
from driftwatch.rulebook.lint_places import Variant, problem
from driftwatch.rulebook.overrides import ReadOverride
from driftwatch.rulebook.rules import Rule, pool_pattern
from driftwatch.yaml_models import place_of

MINUTE_SECONDS = 60.0
_ADDRESS = re.compile(r"https?://[^/?#:@ <>|\"'`][^ <>|\"'`]*", re.I)
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_NAME_IN_BRACES = re.compile(r"\{[a-z]\w*\}")


def key_problems(one: Variant, *, has_runbook: bool) -> Iterator[Problem]:
    """Every lint of the keys of a rule or an override.

    ``has_runbook``: the configuration has one for rules that name none, or they are driftwatch's.
    """
    yield from _times(one)
    if one.is_rule:
        yield from _summary(one)
        yield from _templates(one)
        yield from _runbook(one, has_runbook)


def _times(one: Variant) -> Iterator[Problem]:
    """`for` and `keep_firing_for` are counted in minutes."""
    times = {"for": one.rule.for_seconds, "keep_firing_for": one.rule.keep_firing_for_seconds}
    for key, seconds in times.items():
        if key in one.entries.entries and seconds % MINUTE_SECONDS:
            written = getattr(one.entries.entries[key][1], "raw", "")
            minutes = int(seconds // MINUTE_SECONDS) + 1
            message = f"{key}: {written} counts as {minutes} min"
            help_text = f"driftwatch counts whole minutes: write {minutes}m"
            yield problem(one.file, one.place(key), "for-rounded", message, help_text)


def _summary(one: Variant) -> Iterator[Problem]:
    """Line 1 of a page says what is wrong."""
    rule = one.rule
    if not rule.annotations.get("summary", "").strip() and not rule.page.says:
        message = f"{rule.alert} has no summary: line 1 of its page does not say what is wrong"
        help_text = "annotations: {summary: more than 20 requests wait}"
        yield problem(one.file, one.place("alert"), "no-summary", message, help_text)


def _templates(one: Variant) -> Iterator[Problem]:
    """Templates of Prometheus, or of a page, where nobody fills them in."""
    for name, text in one.rule.annotations.items():
        template = _TEMPLATE.search(text)
        if template is None and name == "summary":
            template = _NAME_IN_BRACES.search(text)
        if template is not None:
            message = f"no page fills {template.group()} in: templates stand under page:"
            help_text = 'write page: {says: ["{waiting_requests} requests wait"]}'
            place = one.place("annotations", name)
            yield problem(one.file, place, "template", message, help_text)


def _runbook(one: Variant, has_runbook: bool) -> Iterator[Problem]:
    """A page links its runbook, by an address that a phone can open."""
    rule = one.rule
    url = rule.annotations.get("runbook_url")
    if url is None:
        if rule.severity == "page" and rule.enabled and not has_runbook:
            message = f"{rule.alert} wakes somebody and links no runbook"
            help_text = (
                "annotations: {runbook_url: https://…}, or of all rules rules.runbook in "
                "driftwatch.yaml"
            )
            yield problem(one.file, one.place("alert"), "no-runbook", message, help_text)
    elif not _is_address(url):
        place = one.place("annotations", "runbook_url")
        message = f"'{url}' is no http or https address, so no page links it"
        yield problem(one.file, place, "runbook-url", message, "runbook_url: https://…")


def without_effect(overrides: Sequence[ReadOverride], rules: Sequence[Rule]) -> Iterator[Problem]:
    """Overrides of rules that are off, or that say what the rules say already."""
    before = {rule.id: replace(rule, overrides=()) for rule in rules}
    for one in filter(lambda each: each.is_whole, overrides):
        pairs = [(before[rule.id], rule) for rule in one.rules]
        if not pairs or any((a.enabled or b.enabled) and a != b for a, b in pairs):
            continue
        is_off = not any(rule.enabled for rule in one.rules)
        why = "the rule is off" if is_off else "the rule says the same"
        help_text = "add enabled: true, or leave the override out"
        message = f"this override of {one.override.alert} changes nothing: {why}"
        if not is_off:
            help_text = "leave it out"
        yield problem(one.file, place_of(one.entries, ("alert",)), "no-effect", message, help_text)


def shadowed(overrides: Sequence[ReadOverride]) -> Iterator[Problem]:
    """Overrides of pools that earlier ones of the same rules have all of."""
    earlier: dict[str, list[str]] = {}  # rule id → pools
    for one in filter(lambda each: each.is_whole, overrides):
        names = one.override.pools
        # as a text, a later * can only be part of what an earlier * stands for
        covers = [
            next((e for e in earlier.get(rule.id, ()) if _covers(e, name)), None)
            for rule in one.rules
            for name in names
        ]
        if covers and None not in covers:
            message = f"this override never counts: {covers[0]} above is the first that fits"
            help_text = "put the narrower pool first"
            place = place_of(one.entries, ("pools",))
            yield problem(one.file, place, "shadowed", message, help_text)
        for rule in one.rules:
            earlier.setdefault(rule.id, []).extend(names)


def _covers(pattern: str, name: str) -> bool:
    return re.match(pool_pattern([pattern]), name) is not None


def _is_address(text: str) -> bool:
    """Whether a page may link it: the rule of ``notify.page.http_url``, and a host."""
    return text.isprintable() and _ADDRESS.fullmatch(text) is not None
