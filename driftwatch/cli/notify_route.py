"""``driftwatch notify route``: who is told of an incident, in which order, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import DEFAULT_CONFIG
from driftwatch.cli.history_options import json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT, EXIT_PROBLEM
from driftwatch.cli.output import encodable, print_json
from driftwatch.errors import UsageError
from driftwatch.notify.layout import wrap
from driftwatch.notify.numbers import clean, duration

if TYPE_CHECKING:
    from driftwatch.incidents.route_preview import Possibility, Preview
    from driftwatch.incidents.routing import Routed, Routes
    from driftwatch.model import Severity
    from driftwatch.pipeline.plan import Plan
    from driftwatch.rulebook.rules import Rule

_SEVERITIES: tuple[Severity, ...] = ("page", "ticket", "notice")
_WIDTH, _LABEL = 80, 16


@dataclass(frozen=True, slots=True)
class RuleRoute:
    """Who is told, for one rule and severity."""

    rule: Rule | None  # None where only labels are given
    severity: Severity
    preview: Preview
    off: str | None = None  # why the rule never fires there, None where it may


@click.command("route")
@click.argument("labels", nargs=-1, required=True, metavar="LABELS...")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path(DEFAULT_CONFIG),
    show_default=True,
    metavar="FILE",
    help="Configuration with routes, receivers, pools and rules.",
)
@json_option
def command(labels: tuple[str, ...], config: Path, as_json: bool) -> int:
    """Print which receivers get an incident with these LABELS, in which order, and why.

    LABELS are name=value: alert, rule, severity, and those of the target (pool, instance, ...); a
    rule's name alone is its alert. The severity is the rule's where none is given. Exit: 0
    answered, 1 nobody gets it, 2 usage, 4 it depends on a label that is not given. Piped, each line
    is one receiver: rule, severity, when, receiver, note, why, condition; tabs between them.
    """
    from driftwatch.service.configuration import plan_of_settings
    from driftwatch.service.receivers import subscriptions_of
    from driftwatch.settings import load_settings

    settings = load_settings(config)
    plan = plan_of_settings(settings)
    labels_given = _labels(labels)
    routes = plan.routes_to(subscriptions_of(settings))
    rule_routes = [
        _answer(routes, plan, labels_given, *case) for case in _cases(plan, labels_given)
    ]
    _note_pool(labels_given, plan)
    places = _places(config, plan)
    if as_json:
        pool = labels_given.get("pool", "")
        documents = [_document(one, places, plan.digest_hour, pool) for one in rule_routes]
        print_json({"schema_version": 1, "labels": labels_given, "answers": documents})
    else:
        _print(rule_routes, labels_given, places, plan.digest_hour)
    nobody = any(
        one.off is None and each.routed.reaches_nobody
        for one in rule_routes
        for each in one.preview.possibilities
    )
    if nobody:
        return EXIT_PROBLEM
    determined = all(one.preview.is_determined for one in rule_routes)
    return EXIT_ANSWERED if determined else EXIT_NO_VERDICT


def _labels(texts: Sequence[str]) -> dict[str, str]:
    """Label → value; a word without ``=`` is an alert's name.

    Raises UsageError: one is given twice, or no label.
    """
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            name, value = ("rule" if "{" in text else "alert"), text
        elif "{" in name:
            name, value = "rule", text
        value = value.strip('"') if name != "rule" else value
        if not name.isidentifier():
            help_text = "write name=value, e.g. pool=rag-8b"
            raise UsageError(f"{text!r} is no label", help_text=help_text)
        if name in labels:
            raise UsageError(f"label {name} is given twice")
        labels[name] = value
    return labels


def _cases(plan: Plan, labels: Mapping[str, str]) -> list[tuple[Rule | None, Severity]]:
    """The rules and severities that are meant.

    Raises UsageError: there is no such rule, alert or severity.
    """
    from driftwatch.yaml_models import near

    severity = labels.get("severity")
    if severity is not None and severity not in _SEVERITIES:
        hint = near(severity, _SEVERITIES) or f"severities: {', '.join(_SEVERITIES)}"
        raise UsageError(f"there is no severity {severity}", help_text=hint)
    rules: list[Rule] = []
    for label in ("rule", "alert"):
        if label in labels:
            names = {rule.id if label == "rule" else rule.alert: rule for rule in plan.rules}
            rules = [
                rule
                for rule in plan.rules
                if labels[label] == (rule.id if label == "rule" else rule.alert)
            ]
            if not rules:
                hint = near(labels[label], names) or f"{label}s: {', '.join(names)}"
                raise UsageError(f"there is no {label} {labels[label]}", help_text=hint)
            break
    if not rules:
        return [(None, one) for one in _SEVERITIES if severity in (None, one)]
    pool = labels.get("pool")
    return [
        (rule, one)
        for rule in rules
        for one in _SEVERITIES
        if (one == severity if severity else one in _severities(rule, pool))
    ]


def _severities(rule: Rule, pool: str | None) -> set[Severity]:
    """Those the rule has in the pool; of an unknown pool those that it has in some."""
    if pool is not None:
        return {rule.in_pool(pool).severity}
    return {one.severity for one in rule.variants}


def _answer(
    routes: Routes, plan: Plan, labels: Mapping[str, str], rule: Rule | None, severity: Severity
) -> RuleRoute:
    from driftwatch.incidents.route_preview import preview

    complete = {**labels, "severity": severity}
    off = None
    if rule is not None:
        complete |= {"rule": rule.id, "alert": rule.alert}
        here = rule.in_pool(labels.get("pool")) if "pool" in labels else rule
        if not (here.enabled if "pool" in labels else rule.is_evaluated):
            off = here.reason or "switched off"
    return RuleRoute(rule, severity, preview(routes, complete, severity), off)


def _note_pool(labels: Mapping[str, str], plan: Plan) -> None:
    """A pool that no configuration has may exist all the same: it is named by its labels then."""
    from driftwatch.yaml_models import near

    pool, pools = labels.get("pool"), {one.name for one in plan.pools}
    if pool is not None and pools and pool not in pools:
        hint = near(pool, pools)
        text = f"warning: no pool of the configuration is called {pool}"
        click.echo(text + (f"; {hint}" if hint else ""), err=True)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where each decision stands, as file and line."""

    routes: Sequence[str]
    conditions: Sequence[str]  # of each route, in words
    pools: Mapping[str, str]
    fallback: str
    receivers: str

    def of(self, way: Possibility, rule: Rule | None, pool: str) -> str:
        """Of the decision of one way; ``pool``: the one that is given."""
        routed = way.routed
        if routed.decided_by == "rule" and rule is not None:
            return _of_rule(rule)
        if routed.decided_by == "route" and routed.route is not None:
            return self.routes[routed.route - 1]
        if routed.decided_by == "pool":
            pools = [one.value for one in way.conditions if one.name == "pool"]
            return self.pools.get([*pools, pool][0], self.receivers)
        return self.fallback if routed.decided_by == "fallback" else self.receivers


def _places(config: Path, plan: Plan) -> _Places:
    from driftwatch.rulebook.book import display_path
    from driftwatch.yaml_models import place_of
    from driftwatch.yaml_positions import Entries, read_yaml

    root, name = read_yaml(config).root, display_path(config)

    def at(*location: int | str) -> str:
        if not isinstance(root, Entries) or str(location[0]) not in root.entries:
            return name
        return f"{name}:{place_of(root, location).line}"

    return _Places(
        [at("routes", number) for number in range(len(plan.routes))],
        [route.conditions for route in plan.routes],
        {pool.name: at("pools", number, "receivers") for number, pool in enumerate(plan.pools)},
        at("fallback_receiver"),
        at("receivers", 0),
    )


def _of_rule(rule: Rule) -> str:
    from driftwatch.rulebook.book import display_path

    return f"{display_path(Path(rule.path))}:{rule.line}" if rule.path else "shipped rules"


def _steps(routed: Routed, hour: int) -> Iterator[tuple[str, Sequence[str], str]]:
    """When, receivers, and what is to be added: in the order of time."""
    if routed.receivers:
        yield "now", routed.receivers, ""
    for after, to in routed.escalations:
        yield f"after {duration(after)}", to, "unless somebody acknowledges"
    if routed.repeat_seconds is not None:
        again = "until somebody acknowledges"
        yield f"every {duration(routed.repeat_seconds)}", routed.receivers, again
    if routed.digests:
        yield f"at {hour:02d}:00 UTC", routed.digests, "in the daily digest"
    if routed.reaches_nobody:
        yield "now", (), "nobody"
    elif not routed.receivers and not routed.digests:
        yield "now", (), "nobody: each of these receivers has notices: off"


def _print(
    rule_routes: Sequence[RuleRoute], labels: Mapping[str, str], places: _Places, hour: int
) -> None:
    pool = labels.get("pool", "")
    if not sys.stdout.isatty():
        for route in rule_routes:
            _print_piped(route, pool, places, hour)
        return
    alike: dict[tuple[Severity, Preview, str | None], list[RuleRoute]] = {}
    for route in rule_routes:
        alike.setdefault((route.severity, route.preview, route.off), []).append(route)
    for position, same in enumerate(alike.values()):
        if position:
            click.echo()
        _print_screen(same, pool, places, hour)


def _print_piped(route: RuleRoute, pool: str, places: _Places, hour: int) -> None:
    for one in route.preview.possibilities:
        why = _why(one, route.rule, pool, places)
        condition = " ".join(each.text for each in one.conditions)
        name = "" if route.rule is None else route.rule.id
        for when, receivers, note in _steps(one.routed, hour):
            for receiver in receivers or ("",):
                cells = (name, route.severity, when, receiver, note, why, condition)
                click.echo(encodable("\t".join(clean(cell) for cell in cells)))


def _print_screen(same: Sequence[RuleRoute], pool: str, places: _Places, hour: int) -> None:
    """Rules with one route, as one."""
    route, rule = same[0], same[0].rule
    name = "every rule" if rule is None else rule.id
    if rule is not None and len(same) > 1:
        name = f"{len(same)} rules {rule.alert}"
    head = ", ".join([name, route.severity, *([f"pool {pool}"] if pool else [])])
    if not route.preview.is_determined:
        head += f": undetermined without {', '.join(route.preview.missing)}"
    _line(head, "")
    if route.off is not None:
        _line("never fires", f"{route.off} ({_of_rule(rule)})" if rule else route.off)
    for position, one in enumerate(route.preview.possibilities):
        if not route.preview.is_determined:
            condition = " ".join(each.text for each in one.conditions)
            _line(("else if " if position else "if ") + condition if condition else "else", "")
        inner = "" if route.preview.is_determined else "  "
        for when, receivers, note in _steps(one.routed, hour):
            _line(inner + when, ", ".join(part for part in (", ".join(receivers), note) if part))
        _line(inner + "why", _why(one, rule, pool, places))
    for number in route.preview.passed_over[:5]:
        text = f"route {number} ({places.routes[number - 1]}): {places.conditions[number - 1]}"
        _line("no match", text)


def _line(label: str, text: str) -> None:
    line = f"{label:<{_LABEL}}{text}" if text else label
    for part in wrap(encodable(clean(line)), _WIDTH, " " * _LABEL if text else "  "):
        click.echo(part)


def _why(way: Possibility, rule: Rule | None, pool: str, places: _Places) -> str:
    if way.routed.reaches_nobody:
        return way.routed.why
    head, colon, rest = way.routed.why.partition(":")
    return f"{head} ({places.of(way, rule, pool)}){colon}{rest}"


def _document(route: RuleRoute, places: _Places, hour: int, pool: str) -> dict[str, Any]:
    def ways() -> Iterator[dict[str, Any]]:
        for one in route.preview.possibilities:
            routed = one.routed
            yield {
                "if": [each.text for each in one.conditions],
                "decided_by": routed.decided_by,
                "route": routed.route,
                "place": places.of(one, route.rule, pool),
                "why": routed.why,
                "receivers": list(routed.receivers),
                "digest_receivers": list(routed.digests),
                "digest_hour": hour if routed.digests else None,
                "repeat_seconds": routed.repeat_seconds,
                "escalations": [
                    {"after_seconds": after, "receivers": list(to)}
                    for after, to in routed.escalations
                ],
                "reaches_nobody": routed.reaches_nobody,
            }

    return {
        "rule": None if route.rule is None else route.rule.id,
        "severity": route.severity,
        "never_fires": route.off,
        "missing": list(route.preview.missing),
        "ways": list(ways()),
        "routes_without_match": list(route.preview.passed_over),
    }
