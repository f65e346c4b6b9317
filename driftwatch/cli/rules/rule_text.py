"""What ``driftwatch rules explain`` prints of a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from driftwatch.evidence import BY_NAME
from driftwatch.notify.rule_words import Line, rule_lines
from driftwatch.numbers import brief, duration, percent, plural, utc_text
from driftwatch.rulebook.comparisons import Comparison, Part, parts_of, unit_text

if TYPE_CHECKING:
    from driftwatch.pipeline.rule_history import NearestMiss, PoolHistory, RuleHistory
    from driftwatch.rulebook.rules import Rule

_POOLS = 8  # on the screen; --json has all


def lines(
    rule: Rule, past: RuleHistory | None, fired: int, why: str | None, *, stored: bool
) -> Iterator[Line]:
    """The answer, the rule, what it reads, how near it came, what it lacks, where that is from."""
    yield f"{rule.id} {_answer(rule, past, fired, why)}", "  "
    yield from rule_lines(rule)
    if past is None:
        return
    yield from _columns(rule, past)
    if past.nearest is not None:
        yield from _nearest(past.nearest)
    if past.unknown:
        yield f"No verdict in {_of(past.unknown, past.judged + past.unknown)}", "  "
    each = "one row for ten minutes"
    span = f"{past.since:%Y-%m-%d %H:%M} to {past.until:%Y-%m-%d %H:%M} UTC"
    where = "the database" if stored else "the recording"
    yield f"From {where}: {span}, {each}", "  "


def _answer(rule: Rule, past: RuleHistory | None, fired: int, why: str | None) -> str:
    """The first line: what happened, else how near it came, else why nobody can tell."""
    off = "" if rule.is_evaluated else f"is off ({rule.reason}); its condition "
    if past is None:
        return f"{off}has no evidence yet: {why}"
    over = duration((past.until - past.since).total_seconds())
    if not past.judged:
        return f"{off}has no verdict in any of {plural(past.unknown, 'server-minute')} over {over}"
    if past.true_minutes:
        share = percent(past.true_minutes / past.judged)
        times = f"; {plural(fired, 'incident')} fired" if fired else "; no incident fired"
        answer = f"held in {_of(past.true_minutes, past.judged)} ({share}) over {over}"
        if not fired:
            times += ": driftwatch rules backtest lists what it would have sent"
        return f"{off}{answer}{times if rule.is_evaluated else ''}"
    nearest = "" if past.nearest is None else f"; nearest: {_far(past.nearest)}"
    return (
        f"{off}did not hold in any of {plural(past.judged, 'server-minute')} over {over}{nearest}"
    )


def _of(part: float, whole: float) -> str:
    return f"{part:,.0f} of {plural(whole, 'server-minute')}"


def _far(miss: NearestMiss) -> str:
    """The first comparison that failed, with its value."""
    one = miss.failing[0]
    more = f" and {len(miss.failing) - 1} more" if len(miss.failing) > 1 else ""
    return f"{_measured(one, miss)}{more}"


def _measured(one: Comparison, miss: NearestMiss) -> str:
    values = [_value(name, miss.values[name]) for name in one.columns]
    if one.subject == one.columns[0]:
        rest = "".join(f" ({n} {v})" for n, v in zip(one.columns[1:], values[1:], strict=True))
        return f"{one.subject} {values[0]}, wanted {one.wanted}{rest}"
    named = ", ".join(f"{n} {v}" for n, v in zip(one.columns, values, strict=True))
    return f"{one.subject} wanted {one.wanted} ({named})"


def _value(column: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return f"'{value}'"
    return f"{brief(value)}{unit_text(BY_NAME[column].unit)}"


def _columns(rule: Rule, past: RuleHistory) -> Iterator[Line]:
    """What it reads now, pool by pool."""
    yield f"What it reads, at {past.until:%Y-%m-%d %H:%M} UTC", "  "
    for name in sorted(rule.columns):
        values = [f"{pool.pool} {_range(name, pool)}" for pool in past.pools[:_POOLS]]
        more = len(past.pools) - _POOLS
        if more > 0:
            values.append(f"{more} more pools (--json)")
        yield f"  {name}: {'; '.join(values)}", "    "
        yield f"    {BY_NAME[name].meaning.split('; ')[0]}", "    "


def _range(name: str, pool: PoolHistory) -> str:
    """From the lowest to the highest of the pool's targets."""
    why = f" on some ({pool.lacks[name]})" if name in pool.lacks else ""
    ends = pool.values[name]
    if ends is None:
        return f"unknown ({pool.lacks.get(name, 'it has no value')})"
    low, high = (_value(name, end) for end in ends)
    if low == high:
        text = low
    elif isinstance(ends[0], bool | str):
        text = f"{low} or {high}"
    else:
        text = f"{low.removesuffix(unit_text(BY_NAME[name].unit))} to {high}"
    return f"{text}, unknown{why}" if why else text


def _nearest(miss: NearestMiss) -> Iterator[Line]:
    minutes = round((miss.end - miss.start).total_seconds() / 60)
    length = "minute" if minutes == 1 else f"{minutes} min"
    fail = "fails" if len(miss.failing) == 1 else "fail"
    yield (
        f"Nearest miss: {miss.target.text} in the {length} to {miss.end:%Y-%m-%d %H:%M} UTC, "
        f"{len(miss.failing)} of {miss.comparisons} comparisons {fail}",
        "  ",
    )
    for one in miss.failing:
        yield f"  {_measured(one, miss)}", "    "


def document(rule: Rule, past: RuleHistory | None, fired: int, why: str | None) -> dict[str, Any]:
    """The same as JSON."""
    basis: dict[str, Any] = {
        "schema_version": 1,
        "rule": rule.id,
        "path": rule.path,
        "line": rule.line,
        "severity": rule.severity,
        "enabled": rule.is_evaluated,
        "when": rule.when.text,
        "conditions": {
            key: _tree(parts_of(condition))
            for key, condition in (
                ("when", rule.when),
                ("given", rule.precondition),
                ("until", rule.until),
            )
            if condition is not None
        },
        "for_seconds": rule.for_seconds,
        "reason": why,
        "history": None,
    }
    if past is None:
        return basis
    history = {
        "since": utc_text(past.since),
        "until": utc_text(past.until),
        "server_minutes": past.judged + past.unknown,
        "held_server_minutes": past.true_minutes,
        "unknown_server_minutes": past.unknown,
        "held_ratio": past.true_minutes / past.judged if past.judged else None,
        "incidents": fired,
        "pools": [_pool_document(pool) for pool in past.pools],
        "nearest_miss": None if past.nearest is None else _miss_document(past.nearest),
    }
    return {**basis, "history": history}


def _tree(part: Part) -> Any:
    if isinstance(part, Comparison):
        return {"subject": part.subject, "wanted": part.wanted, "columns": list(part.columns)}
    return {part.how: [_tree(inner) for inner in part.parts]}


def _pool_document(pool: PoolHistory) -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "targets": pool.targets,
        "server_minutes": pool.minutes,
        "held_server_minutes": pool.true_minutes,
        "unknown_server_minutes": pool.unknown,
        "columns": {
            name: {
                "lowest": None if ends is None else ends[0],
                "highest": None if ends is None else ends[1],
                "unit": BY_NAME[name].unit,
                "reason": pool.lacks.get(name),
            }
            for name, ends in pool.values.items()
        },
    }


def _miss_document(miss: NearestMiss) -> dict[str, Any]:
    return {
        "target": miss.target.text,
        "pool": miss.pool,
        "start": utc_text(miss.start),
        "end": utc_text(miss.end),
        "comparisons": miss.comparisons,
        "failing": [
            {"subject": one.subject, "wanted": one.wanted, "columns": list(one.columns)}
            for one in miss.failing
        ],
        "values": dict(miss.values),
    }
