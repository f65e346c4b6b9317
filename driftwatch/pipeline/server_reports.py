"""What servers report of themselves: settings, and what runs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol, runtime_checkable

import orjson

from driftwatch.collect.fingerprint import fingerprint_from_server_info, from_version
from driftwatch.collect.schema import Source
from driftwatch.collect.server_settings import from_server_info
from driftwatch.detect.fingerprints import merged
from driftwatch.model import Fingerprint
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store

MEMORY = "tick.told"


@runtime_checkable
class Reporting(Protocol):
    """A source that scrapes servers directly, and asks them about themselves."""

    def version(self) -> Mapping[str, str | None]:
        """Release by instance; None where it does not say."""

    def server_info(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Settings, model and driver by instance; None where they are not served."""


def with_reports(plan: Plan, sources: Iterable[Source]) -> Plan:
    """The plan with what the servers that are scraped directly answer now.

    ``/version`` names the release; ``/server_info``, where it is served (vLLM's development mode),
    settings, model and driver. A server's answer stands until it restarts.
    """
    served, reported = dict(plan.served), dict(plan.reported)
    for source in sources:
        if not isinstance(source, Reporting):
            continue
        versions = source.version()
        for instance, answer in source.server_info().items():
            served.pop(instance, None)
            runs = from_version(versions.get(instance))
            if answer is not None:
                served[instance] = from_server_info(answer)
                runs = merged(runs, fingerprint_from_server_info(answer))
            reported[instance] = runs
    if served == plan.served and reported == plan.reported:
        return plan
    return replace(plan, served=served, reported=reported)


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
