"""Who was there in each minute of a day, as a small document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.state import Stretch


def joined_up(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Neighbours of the same targets as one: what is left does not depend on how it was read."""
    joined: list[Stretch] = []
    for stretch in stretches:
        last = joined[-1] if joined else None
        if last is not None and _goes_on(last, stretch):
            joined[-1] = replace(last, last=stretch.last, retired=stretch.retired)
        else:
            joined.append(stretch)
    return joined


def _goes_on(last: Stretch, following: Stretch) -> bool:
    changed = last.retired or following.departed or following.reborn
    return not changed and last.last == following.first and last.targets == following.targets


def document_of(stretches: Sequence[Stretch]) -> list[dict[str, Any]]:
    """As JSON: of each stretch only the targets that are new or others than before."""
    before: Mapping[TargetKey, Target] = {}
    rows = []
    for stretch in stretches:
        now = stretch.targets
        rows.append(
            {
                "first": stretch.first.isoformat(),
                "last": stretch.last.isoformat(),
                "new": [_row(target) for key, target in now.items() if before.get(key) != target],
                "gone": [list(key) for key in before if key not in now],
                "departed": _reasons(stretch.departed),
                "retired": _reasons(stretch.retired),
                "reborn": [list(key) for key in sorted(stretch.reborn)],
            }
        )
        before = now
    return rows


def stretches_of(document: Sequence[Mapping[str, Any]]) -> list[Stretch]:
    """What :func:`document_of` was given."""
    targets: dict[TargetKey, Target] = {}
    stretches = []
    for row in document:
        leaving = {TargetKey(*key) for key in row["gone"]}
        now = {key: target for key, target in targets.items() if key not in leaving}
        for one in row["new"]:
            key = TargetKey(one["instance"], one["engine"])
            now[key] = Target(key, one["labels"], one["pool"])
        targets = {key: now[key] for key in sorted(now)}
        stretches.append(
            Stretch(
                first=datetime.fromisoformat(row["first"]),
                last=datetime.fromisoformat(row["last"]),
                targets=targets,
                departed=_by_key(row["departed"]),
                retired=_by_key(row["retired"]),
                reborn=frozenset(TargetKey(*key) for key in row["reborn"]),
            )
        )
    return stretches


def _row(target: Target) -> dict[str, Any]:
    key = target.key
    return {
        "instance": key.instance,
        "engine": key.engine,
        "pool": target.pool,
        "labels": dict(target.labels),
    }


def _reasons(by_key: Mapping[TargetKey, str]) -> list[list[str]]:
    return [[*key, why] for key, why in sorted(by_key.items())]


def _by_key(rows: Sequence[Sequence[str]]) -> dict[TargetKey, str]:
    return {TargetKey(instance, engine): why for instance, engine, why in rows}
