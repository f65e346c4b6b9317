"""Rules that could not fire over a history, or over most of it, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.rulebook.rules import Rule

# A rule that was unknown in so many of the minutes has not looked at most of the history.
_MOST = 0.5
_SPEED = "slower_at_equal_load"


class Unfired:
    """Counts in which minutes rules were unknown, and which of their inputs were in all of them."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._known = dict.fromkeys((rule.id for rule in rules), 0)
        from driftwatch.doctor.needs import can_be_true

        self._of_speed = {
            rule.id
            for rule in rules
            if _SPEED in rule.columns and not can_be_true(rule.when, frozenset((_SPEED,)))
        }
        self._columns = {rule.id: (rule.alert, rule.when.columns) for rule in rules}
        self._dark = set[str]().union(*(rule.when.columns for rule in rules))
        self._row: dict[str, Any] = {}
        self._minutes = self._without_speed = 0
        self._reasons: Counter[str] = Counter()
        self._last: dict[str, str] = {}

    def note(self, rows: pl.DataFrame, verdicts: pl.DataFrame) -> None:
        """See evidence rows and the verdicts beside them."""
        import polars as pl

        for rule in self._known:
            self._known[rule] += verdicts[rule].count() if len(verdicts) else 0
        scraped = rows.filter(pl.col("scrapes") > 0)
        if len(scraped):
            self._dark = {name for name in self._dark if scraped[name].null_count() == len(scraped)}
            self._row = scraped.row(-1, named=True)
        unknown = scraped.filter(pl.col(_SPEED).is_null())
        self._minutes += len(scraped)
        self._without_speed += len(unknown)
        reasons = unknown.select("speed_unknown_code", "speed_unknown_reason").drop_nulls()
        for code, reason in reasons.iter_rows():
            # what is still missing shrinks from minute to minute: the last says how far it came
            self._reasons[code] += 1
            self._last[code] = reason

    def lines(self) -> Iterator[str]:
        """A sentence per rule that knows no speed; of the others a line per missing input."""
        silent = []
        for rule, count in sorted(self._known.items()):
            alert, columns = self._columns[rule]
            if rule not in self._of_speed or not self._reasons:
                silent += [(alert, name) for name in columns & self._dark] if count == 0 else []
            elif self._without_speed >= _MOST * self._minutes:
                why = self._last[self._reasons.most_common(1)[0][0]]
                when = f" in {self._without_speed:,} of {self._minutes:,} minutes" if count else ""
                yield f"{alert} could not fire{when}: {why}"
        if silent:
            yield "could not fire, for inputs that were unknown in every minute:"
            yield from self._lacking(silent)

    def _lacking(self, silent: Sequence[tuple[str, str]]) -> Iterator[str]:
        """Rules and their unknown inputs, those with one reason in one line."""
        from driftwatch.pipeline.unknown_reasons import reasons

        unknowns = reasons(self._row) if self._row else {}
        by_reason: dict[str, set[tuple[str, str]]] = {}
        for alert, name in silent:
            by_reason.setdefault(unknowns.get(name, "no scrape"), set()).add((alert, name))
        for why, pairs in sorted(by_reason.items(), key=lambda one: sorted(one[1])):
            alerts, names = (", ".join(sorted(set(part))) for part in zip(*pairs, strict=True))
            yield f"  {alerts}: {names} ({why})"
