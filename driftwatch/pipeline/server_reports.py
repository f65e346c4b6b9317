"""What servers report of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol, runtime_checkable

import orjson

from driftwatch.collect.schema import Source
from driftwatch.model import Fingerprint
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store

MEMORY = "tick.told"


@runtime_checkable
class Reporting(Protocol):
    """A source that scrapes servers directly and asks them what they run."""

    def reports(self) -> Mapping[str, Fingerprint]:
        """By instance; empty where the server does not answer."""


def with_reports(plan: Plan, sources: Iterable[Source]) -> Plan:
    """The plan with what each directly scraped server says of itself.

    A server's answer stands until it restarts.
    """
    reported = dict(plan.reported)
    for source in sources:
        if isinstance(source, Reporting):
            reported |= source.reports()
    return plan if reported == plan.reported else replace(plan, reported=reported)


def reports_memory(plan: Plan) -> dict[str, bytes]:
    """The reports, for commands that ask no server."""
    reports = {instance: asdict(runs) for instance, runs in plan.reported.items()}
    return {MEMORY: orjson.dumps(reports, option=orjson.OPT_SORT_KEYS)}


def stored_reports(store: Store) -> Mapping[str, Fingerprint]:
    """Instance → what runs there, as the server last reported."""
    reports: dict[str, Any] = {}
    for stored in store.remembered_by_batch(MEMORY).values():
        reports |= orjson.loads(stored)
    return {instance: Fingerprint(**groups) for instance, groups in reports.items()}
