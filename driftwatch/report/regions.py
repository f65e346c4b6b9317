"""The week of several regions, each of a driftwatch of its own, as one. Pure.

Pools, servers, incidents and silences get their region's name before their own, so that two of the
same name stay two; everything else of the report is as of one fleet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import polars as pl

from driftwatch.model import Incident, TargetKey
from driftwatch.report.material import Material, Region, RuleSet

_NAMES = ("pool", "instance")


def merged(materials: Mapping[str, Material], unread: Mapping[str, str]) -> Material:
    """One material of all regions, in the order of their names.

    ``unread``: region → why it could not be read; ``materials`` are of one week, one at least.
    """
    parts = [of_region(name, material) for name, material in sorted(materials.items())]
    regions = [one for part in parts for one in part.regions]
    regions += [Region(name, reason) for name, reason in unread.items()]
    first = parts[0]

    def each_of(field: str) -> list[Any]:
        return [getattr(part, field) for part in parts]

    def all_of(field: str) -> list[Any]:
        return list(chain.from_iterable(each_of(field)))

    def frames(field: str) -> pl.DataFrame:
        every: list[pl.DataFrame] = each_of(field)
        return pl.concat(every)

    keys = ("instance", "engine", "end")
    return replace(
        first,
        until=max(part.until for part in parts),
        cells=frames("cells").sort(keys),
        baseline_cells=frames("baseline_cells").sort(keys),
        days=frames("days").sort("day", "instance", "engine"),
        incidents=all_of("incidents"),
        verifications=all_of("verifications"),
        advice=all_of("advice"),
        references=all_of("references"),
        proposed=all_of("proposed"),
        silences=all_of("silences"),
        marks={id_: mark for part in parts for id_, mark in part.marks.items()},
        slos={pool: slo for part in parts for pool, slo in part.slos.items()},
        derived=frozenset(all_of("derived")),
        rules=_rules([part.rules for part in parts]),
        # the strictest budget, and money only where one price is everybody's
        false_episodes_per_server_month=min(p.false_episodes_per_server_month for p in parts),
        price=first.price if len({part.price for part in parts}) == 1 else None,
        regions=sorted(regions, key=lambda one: one.name),
    )


def of_region(name: str, material: Material) -> Material:
    """The material of one region with its name before those of its pools, servers and ids."""

    def own(text: str) -> str:
        return f"{name}/{text}" if text else text

    def key(target: TargetKey) -> TargetKey:
        return target._replace(instance=own(target.instance))

    def frame(rows: pl.DataFrame) -> pl.DataFrame:
        names = [column for column in _NAMES if column in rows.columns]
        prefix = pl.lit(f"{name}/")
        return rows.with_columns((prefix + pl.col(column)).alias(column) for column in names)

    pools = material.cells["pool"].n_unique()
    servers = material.cells.select("instance", "engine").n_unique()
    region = Region(name, None, pools, servers, material.until, material.rules)
    return replace(
        material,
        cells=frame(material.cells),
        baseline_cells=frame(material.baseline_cells),
        days=frame(material.days),
        incidents=[_incident(name, one) for one in material.incidents],
        verifications=[
            replace(
                one,
                id=own(one.id),
                instance=own(one.instance),
                pool=own(one.pool),
                incident_id=one.incident_id and own(one.incident_id),
            )
            for one in material.verifications
        ],
        advice=[
            replace(
                one,
                target=key(one.target),
                pool=own(one.pool),
                incident_id=one.incident_id and own(one.incident_id),
            )
            for one in material.advice
        ],
        references=[
            replace(one, pool=own(one.pool), instance=one.instance and own(one.instance))
            for one in material.references
        ],
        proposed=[replace(one, name=own(one.name)) for one in material.proposed],
        silences=[
            replace(one, id=own(one.id), matchers=f"{name}: {one.matchers}")
            for one in material.silences
        ],
        marks={own(id_): mark for id_, mark in material.marks.items()},
        slos={own(pool): slo for pool, slo in material.slos.items()},
        derived=frozenset(map(own, material.derived)),
        regions=(region,),
    )


def _incident(name: str, incident: Incident) -> Incident:
    own = {
        label: f"{name}/{incident.target[label]}" for label in _NAMES if incident.target.get(label)
    }
    return replace(
        incident,
        id=f"{name}/{incident.id}",
        key=f"{name}/{incident.key}",
        target={**incident.target, **own},
        silenced_by=incident.silenced_by and f"{name}/{incident.silenced_by}",
        part_of=incident.part_of and f"{name}/{incident.part_of}",
    )


def _rules(rules: Sequence[RuleSet]) -> RuleSet:
    """Everybody's where they are the same, else a hash of the hashes and the most of each count."""
    if len(set(rules)) == 1:
        return rules[0]
    digest = hashlib.sha256("\n".join(one.sha256 for one in rules).encode()).hexdigest()
    return RuleSet(digest, max(one.rules for one in rules), max(one.disabled for one in rules))


def short_id(id_: str) -> str:
    """The first eight characters of an id, behind its region where it has one.

    >>> short_id("abcdef012345"), short_id("eu/abcdef012345")
    ('abcdef01', 'eu/abcdef01')
    """
    region, slash, own = id_.rpartition("/")
    return f"{region}{slash}{own[:8]}"


def regions_text(regions: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Label and lines of a report's head: who is in it, and who could not be read."""
    present = [
        f"{one['name']}: {one['pools']:,} pool{'s' * (one['pools'] != 1)}, "
        f"{one['servers']:,} server{'s' * (one['servers'] != 1)}"
        for one in regions
        if one["reason"] is None
    ]
    unread = [f"{one['name']}: {one['reason']}" for one in regions if one["reason"] is not None]
    lines = {"REGIONS": ["; ".join(present)], "NOT READ": unread}
    return {label: texts for label, texts in lines.items() if any(texts)}
