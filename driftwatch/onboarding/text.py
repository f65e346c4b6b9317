"""What ``init`` discovered, as a commented configuration file. Pure; label values are escaped."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from driftwatch.collect.inventory import Inventory, Server
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.numbers import plural
from driftwatch.onboarding.discovery import FoundPool

_WIDTH = 80
_LONGEST_VALUE = 60  # characters of a label value in a comment
_MANY_JOBS = 5  # more are not written down one by one
_PLAIN = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True, slots=True)
class Api:
    """How the API was asked, to be written down."""

    url: str  # its address, without credentials
    match: Mapping[str, str]  # labels given on the command line
    # other settings of the source, as YAML scalars: ``tenant``, ``ca_file`` …
    keys: Mapping[str, str]
    basic_auth: tuple[str, str] | None = None  # user name and password file


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration, and what it could not say."""

    text: str  # the file
    # what is missing and how to give it, one sentence each; also at its end
    missing: tuple[str, ...]


def quoted(text: str) -> str:
    r"""A double-quoted YAML scalar on one line, whatever the text holds.

    >>> print(quoted('a "b"\n\x85é'))
    "a \"b\"\n\x85é"
    """
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character == '"':
        return '\\"'
    # unprintable ones, and those that end a line or turn its direction; a byte order mark too
    if character.isprintable() and character != "\\":
        return character
    return character.encode("unicode_escape").decode()


def written(
    inventory: Inventory, pools: Sequence[FoundPool], origin: Api | Mapping[str, str]
) -> Written:
    """The file for what was found.

    ``inventory``: servers and GPUs; ``pools``: what they are put into; ``origin``: the API that was
    asked, or instance → address of the pages.
    """
    missing: list[str] = []
    values: dict[str, Any] = {"api_sources": [], "page_sources": [], "basic_auth": None}
    if isinstance(origin, Api):
        where = f"at {origin.url}"
        values |= {"url": origin.url, "keys": origin.keys, "basic_auth": origin.basic_auth}
        values["api_sources"] = [
            _api_source(*selection, missing) for selection in _selections(inventory, origin.match)
        ]
    else:
        where = f"at {len(origin)} /metrics addresses"
        values["page_sources"] = [
            {"urls": [origin[server.instance] for server in pool.servers], "pool": pool.name}
            for pool in pools
        ]
    silent = [] if isinstance(origin, Api) else inventory.silent
    values["source_notes"] = [f"{one.instance} is left out: {one.reason}" for one in silent]
    engines = sum(pool.engines for pool in pools)
    values["summary"] = (
        f"What driftwatch init found {where}: {plural(len(inventory.servers), 'vLLM server')}, "
        f"{plural(engines, 'engine')}, {plural(len(pools), 'pool')}. Lines without a "
        "number sign were found; what is commented out is for you to fill in."
    )
    labelled = not isinstance(origin, Api)
    values["settings"] = COLUMN_KNOBS
    values["pools"] = [_pool(pool, labelled=labelled) for pool in pools]
    of_pools: dict[str, list[str]] = {}
    for pool in pools:
        for sentence in _missing_of(pool):
            of_pools.setdefault(sentence, []).append(pool.name)
    missing += [f"{_first(names)}: {sentence}" for sentence, names in of_pools.items()]
    missing += _beside_pools(inventory)
    missing.append("receivers: nobody gets a page until one is configured")
    text = _environment().from_string(_template()).render(**values, missing=missing)
    return Written(text, tuple(missing))


def _template() -> str:
    return (resources.files(__package__) / "configuration.yaml.j2").read_text("utf-8")


@lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    environment = SandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {"quoted": quoted, "comment": _comment, "labels": _labels}
    return environment


def _api_source(
    match: Mapping[str, str], note: str, servers: Sequence[Server], missing: list[str]
) -> dict[str, Any]:
    """One source of the API; what is missing for it is added."""
    measured = [s.interval_seconds for s in servers if s.interval_seconds is not None]
    intervals = sorted(set(measured))
    if not intervals:
        of = ", ".join(f"{k}={_short(v)}" for k, v in sorted(match.items())) or "everything"
        missing.append(
            f"the scrape interval of {of} could not be measured: at least one scrape every "
            "30 s is needed"
        )
    if len(intervals) > 1:
        listed = ", ".join(_duration(seconds) for seconds in intervals)
        missing.append(
            f"servers are scraped at different intervals ({listed}): scrape all of a pool alike"
        )
    return {
        "match": match,
        "note": note,
    }


def _selections(
    inventory: Inventory, match: Mapping[str, str]
) -> list[tuple[Mapping[str, str], str, Sequence[Server]]]:
    """What selects the servers: their jobs, where those hold little else."""
    by_job: dict[str | None, list[Server]] = {}
    for server in inventory.servers:
        by_job.setdefault(server.labels.get("job"), []).append(server)
    others: dict[str | None, int] = {}
    for silent in inventory.silent:
        if silent.is_up:
            job = silent.labels.get("job")
            others[job] = others.get(job, 0) + 1
    mixed = [job for job in by_job if job is None or others.get(job, 0) > len(by_job[job])]
    if "job" in match:
        return [(match, "The labels of --match.", inventory.servers)]
    if mixed or len(by_job) > _MANY_JOBS:
        if len(by_job) > _MANY_JOBS:
            why = f"{len(by_job)} jobs have vLLM servers"
        elif None in by_job:
            why = "some are scraped by no job, or by several"
        else:
            why = "they are no job of their own: it has more targets that are not vLLM"
        note = f"Every instance with a vllm: series is watched ({why}). With match a server "
        note += "without any series would be read as well."
        return [(match, note, inventory.servers)]
    return [
        ({**match, "job": job or ""}, f"{plural(len(servers), 'server')} of this job.", servers)
        for job, servers in sorted(by_job.items(), key=lambda item: item[0] or "")
    ]


def _pool(pool: FoundPool, *, labelled: bool) -> dict[str, Any]:
    """A pool as the template has it."""
    first = pool.servers[0]
    about = f"{plural(len(pool.servers), 'server')}, {plural(pool.engines, 'engine')}"
    about += f", e.g. {_short(first.instance)}"
    if pool.kv_cache_tokens is not None:
        low, high = pool.kv_cache_tokens
        size = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        about += f"; KV cache of an engine {size} tokens (read from the metrics)"
    models = sorted({server.labels.get("model_name", "") for server in pool.servers} - {""})
    if labelled and models:
        about += f"; serves {', '.join(map(_short, models))}"
    gpus = pool.gpus_per_replica
    return {
        "name": pool.name,
        "about": about,
        "match": {"pool": pool.name} if labelled else pool.match,
        "gpus": None if gpus is None else f"{gpus:g}",
        "gpus_source": pool.gpus_source,
    }


def _missing_of(pool: FoundPool) -> list[str]:
    """What a pool lacks, one sentence each."""
    missing = []
    if pool.gpus_per_replica is None:
        why = pool.gpus_source or "no GPU reading has the labels of its servers"
        missing.append(f"gpus_per_replica ({why}): without it tokens/s/GPU is unknown")
    return [
        *missing,
        f"{' and '.join(COLUMN_KNOBS)}: no metric shows them; give "
        f"{' and '.join(f'serving.{name}' for name in COLUMN_KNOBS)}, or serving.startup_log or "
        "serving.arguments (vLLM's command line)",
        *pool.doubts,
        "slo: give the latency targets; no metric has them",
        "tuned_for: give the mean lengths that its settings were chosen for; without them and "
        "without a baseline (driftwatch baseline accept) LengthDrift and BatchDrift cannot fire",
    ]


def _beside_pools(inventory: Inventory) -> list[str]:
    """Servers and answers that belong to no pool."""
    notes = _merged(inventory)
    by_reason: dict[str, list[str]] = {}
    for silent in inventory.silent:
        by_reason.setdefault(silent.reason, []).append(silent.instance)
    for reason, instances in sorted(by_reason.items()):
        notes.append(f"{_first(instances)} in no pool: {reason}")
    notes += [f"not answered: {_short(p.where, 120)}: {p.reason}" for p in inventory.problems]
    return notes


def _merged(inventory: Inventory) -> list[str]:
    """Servers that are scraped twice, and names that are not vLLM's own."""
    twice = [server for server in inventory.servers if server.also]
    notes = []
    if twice:
        one = twice[0]
        many = plural(sum(len(server.also) for server in twice), "scrape")
        notes.append(
            f"{many} of a server that is scraped already: {_first([s.instance for s in twice])} is "
            f"also scraped as {_short(one.also[0])}, read once; drop one of the jobs"
        )
    notes += [
        f"vLLM's metrics under the prefix {prefix} are read as vllm:"
        for prefix in sorted(inventory.prefixes)
    ]
    return notes


def _first(names: Sequence[str]) -> str:
    """The first three, the rest counted."""
    text = ", ".join(_short(name) for name in names[:3])
    return text + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _labels(labels: Mapping[str, str], indent: int) -> str:
    return "\n".join(
        f"{' ' * indent}{_key(name)}: {quoted(value)}" for name, value in sorted(labels.items())
    )


def _key(name: str) -> str:
    return quoted(name) if name.lower() in _PLAIN else name


def _comment(text: str, indent: int = 0, first: str = "", rest: str = "") -> str:
    """Comment lines; a line break in the text can end none of them."""
    flat = " ".join("".join(c if c.isprintable() else _escaped(c) for c in text).split())
    pad = " " * indent + "# "
    return textwrap.fill(
        flat,
        _WIDTH,
        initial_indent=pad + first,
        subsequent_indent=pad + rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _short(text: str, characters: int = _LONGEST_VALUE) -> str:
    """A label value as a comment shows it: escaped, and cut where it is long."""
    flat = "".join(_escaped(c) if not c.isprintable() else c for c in text)
    return flat if len(flat) <= characters else flat[: characters - 1] + "…"


def _duration(seconds: float) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 1000}s" if whole % 1000 == 0 else f"{whole}ms"
