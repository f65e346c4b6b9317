"""What decides evidence, as data: kept evidence of anything else is not used."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

import driftwatch
from driftwatch import __version__
from driftwatch.baselines.documents import exported
from driftwatch.collect.schema import Source
from driftwatch.detect.baselines import Baselines
from driftwatch.pipeline.plan import Plan
from driftwatch.store.frames import to_arrow

# Rooms whose code makes evidence of scrapes.
_ROOMS = ("baselines", "collect", "detect", "diagnose", "evidence", "pipeline", "signals")
# What of a plan rules, pages and advice read, and evidence does not.
_OF_RULES = {
    "rules", "trees", "external_url", "simulations", "expected",
}  # fmt: skip
_OF_DELIVERY = {"receivers"}  # the same of a pool
_INPUTS = "inputs"  # whose loss counts as lost coverage: nothing else depends on them
_DIGITS = 12


def identity_of(
    sources: Sequence[Source],
    start: datetime,
    plan: Plan,
    baselines: Baselines,
    reference: pl.DataFrame,
) -> dict[str, Any]:
    """What evidence from ``start`` on depends on, as JSON; no secret is in it."""
    settings = {
        field.name: _plain(getattr(plan, field.name))
        for field in dataclasses.fields(plan)
        if field.name not in _OF_RULES
    }
    return {
        "driftwatch": __version__,
        "code": _code(),
        "polars": pl.__version__,
        "begins": start.isoformat(),
        "sources": [_of_source(source) for source in sources],
        "settings": settings,
        _INPUTS: list(plan.inputs),
        "baselines": {
            "ids": [one.id for one in baselines.every],
            "sha256": _digest(exported(baselines.every).encode()),
        },
        "reference": _digest(to_arrow(reference)) if len(reference) else None,
    }


def name_of(identity: Mapping[str, Any]) -> str:
    """The folder's name: rules that read other metrics find the same evidence."""
    named = {key: value for key, value in identity.items() if key != _INPUTS}
    return f"evidence-{_digest(_canonical(named))}"


def inputs_of(identity: Mapping[str, Any]) -> tuple[str, ...]:
    """Registry columns whose loss the evidence counts (``Plan.inputs``)."""
    return tuple(identity[_INPUTS])


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Where two identities differ: ``settings.pools``, at most two keys deep."""
    return sorted({".".join(path) for path, _ in _leaves(one) ^ _leaves(other)})


def _leaves(value: Mapping[str, Any]) -> set[tuple[tuple[str, ...], str]]:
    return {
        ((key,) if not isinstance(below, Mapping) else (key, name), _canonical(leaf).decode())
        for key, below in value.items()
        for name, leaf in (below.items() if isinstance(below, Mapping) else [("", below)])
    }


def _of_source(source: Source) -> Any:
    describe = getattr(source, "identity", None)
    return {"name": source.name} if describe is None else _plain(describe())


def _plain(value: Any) -> Any:
    """Values of settings as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        names = (field.name for field in fields if field.name not in _OF_DELIVERY)
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(one) for one in value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


@cache
def _code() -> str:
    """Of the code between scrapes and evidence: an edited checkout has the version it had."""
    every = hashlib.sha256()
    for path in _files(Path(driftwatch.__file__).parent):
        every.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return every.hexdigest()[:_DIGITS]


def _files(package: Path) -> Iterator[Path]:
    for room in _ROOMS:
        folder = package / room
        yield from sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml"))
