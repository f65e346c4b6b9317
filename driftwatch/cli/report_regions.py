"""``driftwatch report --merge``: the stores of several regions, read for one report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.clock import SystemClock
from driftwatch.database_place import Place, place_of
from driftwatch.errors import ConfigError, DriftwatchError, NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.pipeline.plan import Plan
    from driftwatch.report.material import Material, Price
    from driftwatch.report.week import Week
    from driftwatch.store import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class _Region:
    """What one region's report is made with."""

    plan: Plan
    place: Place
    price: Price | None

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Its database, of this version; never made or migrated."""
        from driftwatch.store import Store

        with Store.open(self.place, migrate=False) as store:
            yield store


def material_of_regions(texts: Sequence[str], chosen: Week | None, at: datetime | None) -> Material:
    """The week of all regions as one.

    ``texts``: NAME=CONFIG; ``chosen``: None = the last whole week that any of them holds.

    Raises UsageError: a text is no NAME=CONFIG, a name comes twice, or the week has not begun;
    NoVerdict: not one of the regions can be read.
    """
    from driftwatch.report.regions import merged
    from driftwatch.report.week import last_whole, week_held
    from driftwatch.service.report_material import gather

    now = SystemClock().now()
    if chosen is not None and chosen.start >= now:
        raise UsageError(f"--week: {chosen.name} has not begun")
    regions: dict[str, _Region] = {}
    reaches: list[tuple[datetime, datetime]] = []
    unread: dict[str, str] = {}
    for name, config in _named(texts).items():
        try:
            region = _region(config)
            with region.store() as store:
                if (reach := store.minutes_reach()) is None:
                    raise NoVerdict("its database holds no minute")
        except DriftwatchError as error:
            unread[name] = _reason(error)
        else:
            regions[name] = region
            reaches.append(reach)
    materials = {}
    for name, region in regions.items():
        span = min(first for first, _ in reaches), max(last for _, last in reaches)
        week = chosen or (week_held(*span) if at is None else last_whole(at))
        until = min(now, week.end)
        try:
            with region.store() as store:
                materials[name] = gather(store, region.plan, week, until=until, price=region.price)
        except DriftwatchError as error:
            unread[name] = _reason(error)
    if not materials:
        raise NoVerdict(
            "no region can be read: "
            + "; ".join(f"{name}: {reason}" for name, reason in sorted(unread.items()))
        )
    return merged(materials, unread)


def _named(texts: Sequence[str]) -> dict[str, str]:
    """Name → configuration or database."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, config = text.partition("=")
        if not equals or not config or not _NAME.fullmatch(name):
            raise UsageError(
                f"--merge {text!r} is not NAME=CONFIG",
                help_text="--merge eu=eu/driftwatch.yaml --merge us=us/driftwatch.yaml",
            )
        if name in named:
            raise UsageError(f"--merge: {name} is named twice")
        named[name] = config
    return named


def _region(config: str) -> _Region:
    """A configuration, or a database alone: pools by their labels then, and no latency target.

    What the environment says of a database is of one process, not of every region.
    """
    from driftwatch.service.configuration import plan_of_rules, plan_of_settings

    if not config.endswith(_SUFFIXES):
        return _Region(plan_of_rules(()), place_of(config), None)
    from driftwatch.report.material import Price
    from driftwatch.settings import load_settings

    settings = load_settings(Path(config), environ={})
    price = settings.gpu_hour_price
    return _Region(
        plan_of_settings(settings),
        settings.database_place,
        None if price is None else Price(price.amount, price.currency),
    )


def _reason(error: DriftwatchError) -> str:
    if isinstance(error, ConfigError):
        places = (p.path if p.line is None else f"{p.path}:{p.line}" for p in error.problems)
        texts = [f"{at}: {p.message}" for at, p in zip(places, error.problems, strict=True)]
        return "; ".join(texts)
    return " ".join(error.message.split())
