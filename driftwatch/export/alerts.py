"""Rules as alerts: where one fires, where it ends, and what of a rule no alert can express.

driftwatch's life cycle counts minutes; Prometheus counts the time since an alert began.
``for: 5m`` is five true minutes, so the fifth begins four minutes after the first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from driftwatch.export.conditions import (
    EVERY,
    CannotExport,
    Truth,
    both,
    either,
    quoted,
    truth_of,
    without,
)
from driftwatch.export.promql import Atom, Binary, Call, Promql
from driftwatch.rulebook.rules import Rule
from driftwatch.service.target_metrics import DEPARTING

# What one alert is about.
TARGET_LABELS, POOL_LABELS = ("pool", "instance", "engine"), ("pool",)
OVERRIDE_LABEL = "pools"  # which pools an override's alert is about
_OF_COVERAGE = "coverage_missing_seconds"
GROUP_REASON = (
    "Alertmanager counts no share of a pool; group_by: [alertname, pool] lists the servers in one "
    "notification"
)
NAME_REASON = "a name that Prometheus refuses: it takes letters, digits and _"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# parts that are exported and mean something a little else there
_DIFFER = frozenset({"for", "keep_firing_for"})
FOR_REASON = "a minute without a verdict restarts `for`; driftwatch only pauses its count"


@dataclass(frozen=True, slots=True)
class Omission:
    """What of some rules was left out."""

    rules: tuple[str, ...]  # alert names, rule ids where only some of an alert's rules are meant
    part: str | None  # key of the rule; None = the whole rule
    reason: str

    def __str__(self) -> str:
        rules = ", ".join(self.rules)
        what = rules if self.part is None else f"`{self.part}` of {rules}"
        word = "Differs" if self.part in _DIFFER else "Not exported"
        return f"{word}: {what}: {self.reason}."


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule as vectors over the target metrics, one series per target (or pool)."""

    rule: Rule  # as it is in these pools
    pools: str  # selector of the pools, with braces; empty = all
    by: tuple[str, ...]  # labels of the vectors
    true: Promql  # where it is true
    ends: Promql | None  # where an alert that fires ends; unknown is in neither
    every: Promql  # every target
    pending_seconds: float  # from the first true minute to the one in which it fires
    keep_seconds: float  # from the first minute that would end it to the one that does

    @property
    def labels(self) -> dict[str, str]:
        """Static labels."""
        labels = {"severity": self.rule.severity, **self.rule.labels}
        if self.rule.receivers:
            labels["receivers"] = ",".join(self.rule.receivers)
        return {name: _literal(text) for name, text in labels.items()}

    @property
    def annotations(self) -> dict[str, str]:
        """The rule's, as templates that print them, and the command that explains the alert."""
        of = "pool" if self.rule.per == "pool" else "instance"
        annotations = self.rule.annotations.items()
        own = {name: _literal(text) for name, text in annotations if _NAME.fullmatch(name)}
        return {"explain": f"driftwatch explain {{{{ .Labels.{of} }}}}", **own}


@dataclass(frozen=True, slots=True)
class Exported:
    """A set of rules as alerts."""

    alerts: tuple[Alert, ...]  # in file order
    omissions: tuple[Omission, ...]
    disabled: tuple[Rule, ...]  # off in driftwatch too


def alerts_of(rules: Sequence[Rule], *, served: Collection[str] | None = None) -> Exported:
    """The alerts of a set of rules.

    Args:
        served: evidence columns that driftwatch serves; None = those that the rules read.
    """
    alerts: list[Alert] = []
    left_out: list[_LeftOut] = []
    enabled = [rule for rule in rules if rule.is_evaluated]
    for rule in enabled:
        try:
            of_rule = [*_alerts(rule, served)]
        except CannotExport as error:
            left_out.append((rule, None, str(error)))
            continue
        alerts += of_rule
        if rule.together is not None:
            left_out.append((rule, "group", GROUP_REASON))
        if not all(map(_NAME.fullmatch, rule.annotations)):
            left_out.append((rule, "annotations", NAME_REASON))
        if any(alert.pending_seconds for alert in of_rule):
            left_out.append((rule, "for", FOR_REASON))
    disabled = tuple(rule for rule in rules if not rule.is_evaluated)
    return Exported(tuple(alerts), _grouped(left_out, enabled), disabled)


_LeftOut = tuple[Rule, str | None, str]  # rule, part, reason


def _grouped(left_out: Iterable[_LeftOut], rules: Sequence[Rule]) -> tuple[Omission, ...]:
    """One omission per part and reason; whole rules first.

    Args:
        rules: all of them: an alert is named by its name alone where all of its rules are meant.
    """
    meant: dict[tuple[str | None, str], list[Rule]] = {}
    for rule, part, reason in left_out:
        meant.setdefault((part, reason), []).append(rule)
    count = Counter(rule.alert for rule in rules)
    omissions = []
    for (part, reason), some in sorted(meant.items(), key=lambda item: item[0][0] is not None):
        here = Counter(rule.alert for rule in some)
        names = (r.alert if here[r.alert] == count[r.alert] else r.id for r in some)
        omissions.append(Omission(tuple(dict.fromkeys(names)), part, reason))
    return tuple(omissions)


def _alerts(rule: Rule, served: Collection[str] | None) -> Iterator[Alert]:
    """One alert, or one for the pools of each override and one for the others."""
    if served is not None and (missing := sorted(rule.columns - set(served))):
        columns = "column" if len(missing) == 1 else "columns"
        raise CannotExport(
            f"{columns} {', '.join(missing)}: not served, because no rule of the configuration "
            "reads them; name this file under `rules` there"
        )
    others = ""
    for one in rule.overrides:
        pattern = quoted("|".join(re.escape(name).replace(r"\*", ".*") for name in one.pools))
        if one.rule.enabled:
            # with the label it is no duplicate of the rule's own alert
            labels = {**rule.labels, OVERRIDE_LABEL: ",".join(one.pools)}
            yield _alert(replace(one.rule, labels=labels), f"{{pool=~{pattern}{others}}}")
        if "*" in one.pools:
            return  # of the rest there is no pool
        others += f",pool!~{pattern}"
    if rule.enabled:
        yield _alert(rule, f"{{{others[1:]}}}" if others else "")


def _alert(rule: Rule, pools: str) -> Alert:
    when, over = _where_given(rule)
    every = Atom(f"{EVERY.text}{pools}")
    ends = when.false if over is None else over.true
    if pools:
        when, ends = Truth(both(every, when.true), both(every, when.false)), both(every, ends)
    if when.true is None:
        raise CannotExport("its condition is never true")
    by = POOL_LABELS if rule.per == "pool" else TARGET_LABELS
    return Alert(
        rule,
        pools,
        by,
        true=_by(by, when.true),
        ends=_of_pools(when, ends) if rule.per == "pool" else ends and _by(by, ends),
        every=_by(by, Call("last_over_time", every, "[5m]")),
        pending_seconds=_after_first(rule.for_seconds),
        keep_seconds=_after_first(rule.keep_firing_for_seconds),
    )


def _where_given(rule: Rule) -> tuple[Truth, Truth | None]:
    """``when`` and ``until`` in the minutes in which ``given`` holds.

    About coverage there is no verdict while driftwatch has not decided whether a missing server is
    lost (:func:`driftwatch.pipeline.tick.verdicts_of`).
    """
    when = truth_of(rule.when)
    over = None if rule.until is None else truth_of(rule.until)
    there: Promql | None = EVERY
    if rule.precondition is not None:
        there = truth_of(rule.precondition).true
    if _OF_COVERAGE in rule.columns:
        there = both(Binary(Atom(DEPARTING), "==", Atom("0")), there)

    def inside(truth: Truth) -> Truth:
        return Truth(both(there, truth.true), both(there, truth.false))

    return inside(when), None if over is None else inside(over)


def _of_pools(when: Truth, ends: Promql | None) -> Promql | None:
    """Pools of which every target that counts ends; a target that never answered does not.

    Read where the rule is true for none of the pool: a target whose verdict is known is false.
    """
    if ends is None:
        return None
    ever_answered = Binary(EVERY, "==", Atom("1"))
    counts = ever_answered if ends == when.false else either(ever_answered, when.false)
    others = without(counts, ends)
    of_ended = _by(POOL_LABELS, ends)
    return of_ended if others is None else without(of_ended, _by(POOL_LABELS, others))


def _by(labels: Sequence[str], query: Promql) -> Promql:
    return Call(f"group by ({', '.join(labels)})", query)


def _after_first(seconds: float) -> float:
    """From the first of so many minutes to the last."""
    return 60.0 * max(math.ceil(seconds / 60.0) - 1, 0)


def _literal(text: str) -> str:
    """A text as a template that prints it."""
    return text.replace("{{", '{{ "{{" }}')
