"""The vLLM servers that a source shows: ``driftwatch init`` writes a configuration from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson
import polars as pl

from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.identity import ALSO_LABEL, IMAGE_LABEL
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import matchers, select
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected, SourceProblem
from driftwatch.model import Target

_MANY = 20  # jobs that one query names
_NOT_UP = "Prometheus cannot scrape it (up is 0)"
_LOOK_BACK = timedelta(minutes=5)
# labels of a target that are not those of its series
_OF_TARGET = frozenset({"engine", ALSO_LABEL, IMAGE_LABEL})


@dataclass(frozen=True, slots=True)
class Server:
    """One vLLM server."""

    instance: str  # what it is called: see driftwatch.collect.identity
    labels: Mapping[str, str]  # those that all its series share, instance among them
    engines: tuple[str, ...]  # its engine labels, sorted
    # labels of ``vllm:cache_config_info``, one set for each engine that has one
    caches: tuple[Mapping[str, str], ...] = ()
    also: tuple[str, ...] = ()  # labels under which the same process is scraped once more


@dataclass(frozen=True, slots=True)
class SilentServer:
    """A server, or what looks like one, that shows no ``vllm:`` series now."""

    instance: str  # host:port, or the address where it was not reached
    labels: Mapping[str, str]  # of its ``up`` series
    reason: str  # why nothing was read
    is_up: bool = True  # its newest scrape succeeded


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a source shows."""

    servers: tuple[Server, ...]  # by instance
    silent: tuple[SilentServer, ...] = ()  # by instance
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # GPU table of the last minutes
    problems: tuple[SourceProblem, ...] = ()  # what could not be read
    prefixes: frozenset[str] = frozenset()  # of vLLM's names, other than ``vllm:``


def discover(asker: PrometheusAsker, match: Mapping[str, str], at: datetime) -> Inventory:
    """Servers, and the settings that they were started with.

    ``match``: labels that a vLLM series must carry; empty: any.
    Raises SourceError: the API does not answer; what else it does not answer is a problem;
    UsageError: a label that cannot be matched.
    """
    asker.instant(select(("up",), matchers(match)), at)
    selector: dict[str, str | list[str]] = {**match}
    source = PrometheusSource(asker, selector=selector)
    found = source.listing(at - _LOOK_BACK, at)
    also = {one.instance: one.also for one in inventory_of(found).servers}
    jobs = {target.labels.get("job", "") for target in found.targets.values()}
    if "job" not in match and "" not in jobs and 0 < len(jobs) <= _MANY:
        # whoever else is scraped by these jobs may be meant too
        source = PrometheusSource(asker, selector={**selector, "job": sorted(jobs)})
        found = source.listing(at - _LOOK_BACK, at)
    inventory = inventory_of(found)
    # the other scrape of a server may be of a job that has no further one
    servers = (replace(s, also=s.also or also.get(s.instance, ())) for s in inventory.servers)
    return replace(inventory, servers=tuple(servers), prefixes=source.prefixes)


def inventory_of(found: Collected) -> Inventory:
    """The servers of one answer; one without a good scrape is silent."""
    servers: list[Server] = []
    silent: list[SilentServer] = []
    targets: dict[str, list[Target]] = {}
    for key, target in sorted(found.targets.items()):
        targets.setdefault(key.instance, []).append(target)
    by_instance = found.scrapes.sort("instance", "time").partition_by("instance", as_dict=True)
    for (instance,), rows in by_instance.items():
        name, good = str(instance), rows.filter("ok")
        labels = _shared(targets.get(name, []))
        if good.is_empty():
            reason, is_up = rows["reason"][-1] or "not read", rows["reason"][-1] != "up == 0"
            silent.append(SilentServer(name, labels, reason if is_up else _NOT_UP, is_up))
            continue
        configured = good.drop_nulls("cache_config").unique("engine", keep="last").sort("engine")
        caches = tuple(dict(orjson.loads(text)) for text in configured["cache_config"])
        also = targets[name][0].labels.get(ALSO_LABEL)
        engines = tuple(good["engine"].unique().sort())
        others = () if also is None else tuple(also.split("; "))
        servers.append(Server(name, labels, engines, caches, others))
    return Inventory(tuple(servers), tuple(silent), problems=found.problems)


def _shared(targets: list[Target]) -> dict[str, str]:
    """Labels that all engines of a server have with the same value."""
    every = [set(target.labels.items()) for target in targets]
    same = set.intersection(*every) if every else set()
    return {name: value for name, value in sorted(same) if name not in _OF_TARGET}
