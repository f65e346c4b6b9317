"""What servers say of themselves: settings, and what runs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

import orjson

from driftwatch.collect.fingerprint import fingerprint_from_server_info, from_version
from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import Source
from driftwatch.collect.serving import from_server_info
from driftwatch.detect.fingerprints import merged
from driftwatch.model import Fingerprint
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store

_TOLD = "tick.told"


def asked(plan: Plan, sources: Iterable[Source]) -> Plan:
    """The plan with what the servers that are scraped directly answer.

    ``/version`` names the release; ``/server_info``, where it is served (vLLM's development mode),
    settings, model and driver. What a server does not say now, it did not say.

    Args:
        plan: with what they said before.
        sources: those that are pages are asked; a server's word is kept until it restarts.
    """
    served, told = dict(plan.served), dict(plan.told)
    for source in sources:
        if not isinstance(source, PagesSource):
            continue
        versions = source.version()
        for instance, answer in source.server_info().items():
            served.pop(instance, None)
            found = from_version(versions.get(instance))
            if answer is not None:
                served[instance] = from_server_info(answer)
                found = merged(found, fingerprint_from_server_info(answer))
            told[instance] = found
    if served == plan.served and told == plan.told:
        return plan
    return replace(plan, served=served, told=told)


def told_memory(plan: Plan) -> dict[str, bytes]:
    """What the servers said, to be kept for commands that ask no server."""
    told = {instance: asdict(found) for instance, found in plan.told.items()}
    return {_TOLD: orjson.dumps(told, option=orjson.OPT_SORT_KEYS)}


def stored_told(store: Store) -> Mapping[str, Fingerprint]:
    """Instance → what runs there, as the server last said; none where it was never kept."""
    kept = store.memory().get(_TOLD)
    if kept is None:
        return {}
    return {instance: Fingerprint(**groups) for instance, groups in orjson.loads(kept).items()}
