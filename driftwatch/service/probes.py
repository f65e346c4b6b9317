"""Ask a source once, before a service does: for init and doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import polars as pl
from pydantic import ValidationError

from driftwatch.clock import SystemClock
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.http import address_of
from driftwatch.collect.inventory import Inventory, inventory_of
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.schema import SourceProblem
from driftwatch.errors import UsageError
from driftwatch.service.configuration import api_of, sources_of
from driftwatch.settings import PagesSource as PagesSettings
from driftwatch.settings import PrometheusSource, Settings
from driftwatch.yaml_models import Part

_P = TypeVar("_P", bound=Part)

_GPUS_BACK = timedelta(minutes=2)


def checked_source(kind: type[_P], options: Mapping[str, Any]) -> _P:
    """A source as the configuration would have it.

    Raises:
        UsageError: with everything that is wrong.
    """
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, one['loc'])) or 'source'}: "
            + one["msg"].removeprefix("Value error, ")
            for one in error.errors(include_input=False, include_url=False)
            if one["type"] != "too_short"  # of a list whose items are wrong
        ]
        raise UsageError("; ".join(wrong), help_text="give http://host:port") from None


def asker_of(source: PrometheusSource) -> PrometheusAsker:
    """Whom to ask, with the source's credentials and bounds.

    Raises:
        ConfigError: a secret file cannot be read.
    """
    return PrometheusAsker(source.prometheus, **api_of(source))


def found_at_pages(urls: Sequence[str]) -> tuple[Inventory, dict[str, str]]:
    """The servers of metrics pages, each fetched once, and instance → address of each page.

    Raises:
        UsageError: an address that is none, or that holds a user or password.
    """
    addresses = {address.instance: address.url for address in map(address_of, urls)}
    checked_source(PagesSettings, {"pages": list(addresses.values())})
    source, at = PagesSource(urls), SystemClock().now()
    try:
        collected = source.collect(at, at)
    finally:
        source.close()
    return inventory_of(collected), addresses


def gpus_of(
    source: PrometheusSource, at: datetime
) -> tuple[pl.DataFrame, tuple[SourceProblem, ...]]:
    """The GPU table of the last two minutes, as far as the API has DCGM series."""
    from driftwatch.collect.prometheus.source import PrometheusSource as OfServers

    frames = [empty_gpus()]
    problems: list[SourceProblem] = []
    for one in sources_of(Settings.model_validate({"sources": [source]}), SystemClock()):
        if not isinstance(one, OfServers):
            collected = one.collect(at - _GPUS_BACK, at)
            frames.append(collected.gpus)
            problems += collected.problems
        one.close()
    return pl.concat(frames), tuple(problems)
