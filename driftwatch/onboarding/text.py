"""What ``init`` discovered, as a commented configuration file. Pure; label values are escaped."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import SandboxedEnvironment

from driftwatch.collect.inventory import Inventory
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.numbers import plural
from driftwatch.onboarding.discovery import FoundPool
from driftwatch.settings import PrometheusSource

_WIDTH = 80
_LONGEST_VALUE = 60  # characters of a label value in a comment
_MANY_JOBS = 5  # more are not written down one by one
_PLAIN = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration, and what is missing in it."""

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
    inventory: Inventory, pools: Sequence[FoundPool], origin: PrometheusSource | Mapping[str, str]
) -> Written:
    """The file for what was found.

    ``inventory``: servers and GPUs; ``pools``: what they are put into; ``origin``: the API that was
    read, or instance → address of the pages.
    """
    api, addresses = (origin, {}) if isinstance(origin, PrometheusSource) else (None, origin)
    where = plural(len(addresses), "/metrics page") if api is None else api.prometheus
    engines = sum(len(server.engines) for server in inventory.servers)
    of_pools: dict[str, list[str]] = {}
    for pool in pools:
        for sentence in _missing_of(pool):
            of_pools.setdefault(sentence, []).append(pool.name)
    missing = [
        *(f"{_first(names)}: {sentence}" for sentence, names in of_pools.items()),
        *_beside_pools(inventory),
        "receivers: nobody gets a page until one is configured",
    ]
    text = _template().render(
        summary=f"What driftwatch init found at {where}: "
        f"{plural(len(inventory.servers), 'vLLM server')}, {plural(engines, 'engine')}, "
        f"{plural(len(pools), 'pool')}. Lines without a number sign were found; what is commented "
        "out is for you to fill in.",
        api=api,
        selections=() if api is None else _selections(inventory, api.match),
        addresses=addresses,
        silent=inventory.silent if api is None else (),
        settings=COLUMN_KNOBS,
        pools=[(pool, _about(pool, labelled=api is None)) for pool in pools],
        missing=missing,
    )
    return Written(text, tuple(missing))


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = SandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {"quoted": quoted, "comment": _comment, "labels": _labels}
    text = (resources.files(__package__) / "configuration.yaml.j2").read_text("utf-8")
    return environment.from_string(text)


def _selections(
    inventory: Inventory, match: Mapping[str, str]
) -> list[tuple[Mapping[str, str], str]]:
    """Labels that select the servers, and why: their jobs, where those hold little else."""
    if "job" in match:
        return [(match, "The labels of --match.")]
    jobs = Counter(server.labels.get("job") for server in inventory.servers)
    others = Counter(one.labels.get("job") for one in inventory.silent if one.is_up)
    if len(jobs) > _MANY_JOBS:
        why = f"{len(jobs)} jobs have vLLM servers"
    elif None in jobs:
        why = "some are scraped by no job, or by several"
    elif any(others[job] > count for job, count in jobs.items()):
        why = "they are no job of their own: it has more targets that are not vLLM"
    else:
        return [
            ({**match, "job": job or ""}, f"{plural(jobs[job], 'server')} of this job.")
            for job in sorted(jobs, key=str)
        ]
    note = f"Every instance with a vllm: series is watched ({why}). With match a server "
    return [(match, note + "without any series would be read as well.")]


def _about(pool: FoundPool, *, labelled: bool) -> str:
    about = f"{plural(len(pool.servers), 'server')}, {plural(pool.engines, 'engine')}"
    about += f", e.g. {_short(pool.servers[0].instance)}"
    if pool.kv_cache_tokens is not None:
        low, high = pool.kv_cache_tokens
        size = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        about += f"; KV cache of an engine {size} tokens (read from the metrics)"
    models = sorted({server.labels.get("model_name", "") for server in pool.servers} - {""})
    return about + (f"; serves {', '.join(map(_short, models))}" if labelled and models else "")


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
    """Servers that are scraped twice or belong to no pool, and what was not answered."""
    notes = []
    if twice := [server for server in inventory.servers if server.also]:
        scrapes = plural(sum(len(server.also) for server in twice), "scrape")
        notes.append(
            f"{scrapes} of a server that is scraped already: "
            f"{_first([server.instance for server in twice])} is also scraped as "
            f"{_short(twice[0].also[0])}, read once; drop one of the "
            f"{'jobs' if 'job=' in twice[0].also[0] else 'addresses'}"
        )
    for prefix in sorted(inventory.prefixes):
        notes.append(f"vLLM's metrics under the prefix {prefix} are read as vllm:")
    by_reason: dict[str, list[str]] = {}
    for silent in inventory.silent:
        by_reason.setdefault(silent.reason, []).append(silent.instance)
    for reason, instances in sorted(by_reason.items()):
        notes.append(f"{_first(instances)} in no pool: {reason}")
    return [
        *notes,
        *(
            f"not answered: {_short(p.where, 120)}: {p.reason}"
            for p in inventory.problems
            if not (twice and "read once" in p.reason)  # named above
        ),
    ]


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
