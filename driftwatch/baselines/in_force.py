"""Baselines joined to their targets: which are in force, their values, and the release that runs.

The join is computed only when baselines, targets or settings change: most minutes reuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.fingerprint import (
    differences,
    fingerprint_of,
    merged,
    release_sources,
    release_text,
)
from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import REFERENCE_SCHEMA, no_reference
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.pipeline.plan import Plan

_KEY = list(KEY_COLUMNS)

IN_FORCE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "release": pl.String,  # running now; NULL: unknown
    "release_source": pl.String,  # where it was read
    # what differs from the baseline's release, or none; NULL: no baseline, or a release is unknown
    "release_change": pl.String,
    "baseline_refused": pl.String,  # why a baseline that names the target is not in force
    "baseline_until": TIME,  # end of the window of the baseline in force
}
RELEASES_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "release": pl.String,  # the last one known
    "release_since": TIME,  # end of the first minute with it; NULL: it has not changed
    "release_before": pl.String,  # the one before it; NULL: it has not changed
}
# How long a change of release counts without a baseline. After a day the values that driftwatch
# learns from the server's own past include the new release.
_CHANGE_COUNTS_FOR = timedelta(days=1)


def no_releases() -> pl.DataFrame:
    """Releases of no target."""
    return pl.DataFrame(schema=RELEASES_SCHEMA)


@dataclass(frozen=True, slots=True)
class InForce:
    """The baseline of each target now."""

    # ``not_for`` has the targets for which they are not in force
    baselines: Baselines = field(default_factory=Baselines)
    # :data:`IN_FORCE_SCHEMA`, one row per target
    frame: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=IN_FORCE_SCHEMA))
    # :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`, one row per target whose baseline has
    # these values
    reference: pl.DataFrame = field(default_factory=no_reference)
    # the baselines, targets and plan that were joined
    made_of: tuple[Baselines, Mapping[TargetKey, Target], Plan] | None = field(
        default=None, repr=False, compare=False
    )

    def is_current(
        self, baselines: Baselines, targets: Mapping[TargetKey, Target], plan: Plan
    ) -> bool:
        """Whether these are the objects that it was made of."""
        inputs = self.made_of
        return inputs is not None and all(
            one is other for one, other in zip(inputs, (baselines, targets, plan), strict=True)
        )


def in_force(
    baselines: Baselines,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpu_of: Mapping[str, str] | None = None,
) -> InForce:
    """Join baselines to the targets they fit; ``gpu_of``: instance → name of its GPUs."""
    rows: list[tuple[str | bool | datetime | None, ...]] = []
    refused: set[tuple[str, str, str]] = set()
    pairs: list[tuple[Baseline, TargetKey]] = []
    for key, target in targets.items():
        now = fingerprint(target, plan, (gpu_of or {}).get(key.instance))
        why = None
        changed = until = None
        read_from = release_sources(target.labels, _reported(target, plan))
        for baseline in baselines.naming(key.instance, key.engine, target.pool or ""):
            if other := differences(baseline.fingerprint, now, ["identity"]):
                refused.add((baseline.id, *key))
                why = why or refusal(baseline, ", ".join(one.text for one in other))
                continue
            changed = _compared(baseline.fingerprint, now, read_from)
            until = baseline.until
            pairs.append((baseline, key))
            break
        release, source = release_text(now), ", ".join(sorted(set(read_from.values()))) or None
        rows.append((*key, release, source, changed, why, until))
    return InForce(
        baselines=replace(baselines, not_for=frozenset(refused)) if refused else baselines,
        frame=pl.DataFrame(rows, schema=IN_FORCE_SCHEMA, orient="row"),
        reference=_references(pairs),
        made_of=(baselines, targets, plan),
    )


_SAME = "none"


def _reported(target: Target, plan: Plan) -> Fingerprint:
    """The settings that the server reports, else those of its pool."""
    reported = plan.pool_of(target).reported
    by_server = plan.reported.get(target.key.instance)
    return reported if by_server is None else merged(by_server, reported)


def _compared(before: Fingerprint, now: Fingerprint, read_from: Mapping[str, str]) -> str | None:
    """The parts of the release that differ from a baseline's; None where no part is comparable."""
    if not before.release.keys() & now.release.keys():
        return None
    changes = differences(before, now, ["release"])
    return ", ".join(f"{one.text} ({read_from[one.name]})" for one in changes) or _SAME


def refusal(baseline: Baseline, what: str) -> str:
    """Why a baseline is not in force."""
    return f"baseline {baseline.id} is of another server ({what})"


def notes_on(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> dict[str, str]:
    """Id of a baseline → what runs differently now, and whether it is still in force."""
    notes: dict[str, str] = {}
    for key, target in targets.items():
        for one in baselines.naming(key.instance, key.engine, target.pool or ""):
            other = differences(one.fingerprint, ran.get(key, Fingerprint()))
            if not other or one.id in notes:
                continue
            which = f" ({key.text})" if one.scope == "pool" else ""
            identity = any(part.group == "identity" for part in other)
            state = "not in force, another server now" if identity else "changed since"
            notes[one.id] = f"{state}{which}: {', '.join(part.text for part in other)}"
    return notes


def fingerprint(
    target: Target,
    plan: Plan,
    gpu: str | None = None,
    cache_config: str | None = None,
) -> Fingerprint:
    """Settings and release of a target; ``cache_config``: ``vllm:cache_config_info`` as JSON."""
    serving, reported = plan.serving_of(target), _reported(target, plan)
    return fingerprint_of(target.labels, serving, cache_config, gpu, reported)


def gpus_of(minutes: pl.DataFrame) -> dict[str, str]:
    """Instance → name of its GPUs in the last minute that shows it.

    ``minutes``: instance, end, gpu_model.
    """
    named = minutes.drop_nulls("gpu_model").sort("end").unique("instance", keep="last")
    return dict(named.select("instance", "gpu_model").iter_rows())


def with_releases(rows: pl.DataFrame, frame: pl.DataFrame, releases: pl.DataFrame) -> pl.DataFrame:
    """Fill ``release_changed`` (in the window) and ``release_change`` (against the baseline).

    Where the baseline has no release, a change counts since its end; without a baseline, for a day.
    """
    names = [c for c in rows.columns if c not in ("release_changed", "release_change")]
    joined = rows.select(names)
    for table in (
        frame.select(*_KEY, "release_change", "release_source", "baseline_until"),
        releases,
    ):
        joined = joined.join(table, on=_KEY, how="left", maintain_order="left")
    inside = pl.col("release_since") > pl.col("start")
    since = pl.coalesce("baseline_until", pl.col("end") - _CHANGE_COUNTS_FOR)
    until_end = pl.col("release_since") <= pl.col("end")
    changed = (pl.col("release_since") > since) & until_end
    is_known = pl.col("release").is_not_null()
    day = pl.col("release_since").dt.strftime("%Y-%m-%d %H:%M")
    moved = pl.format(
        "{} → {} since {} UTC ({})", "release_before", "release", day, "release_source"
    )
    same = pl.when(pl.col("baseline_until").is_null() & is_known).then(pl.lit(_SAME))
    return joined.with_columns(
        release_changed=pl.when(is_known).then((inside & until_end).fill_null(False)),
        release_change=pl.coalesce("release_change", pl.when(changed).then(moved), same),
    ).drop("release", "release_since", "release_before", "release_source", "baseline_until")


def with_refusals(rows: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """``speed_unknown_reason`` of targets whose baseline is not in force."""
    refused = frame.filter(pl.col("baseline_refused").is_not_null()).select(
        *_KEY, "baseline_refused"
    )
    if refused.is_empty() or "speed_unknown_reason" not in rows.columns:
        return rows
    joined = rows.join(refused, on=_KEY, how="left", maintain_order="left")
    unknown = pl.col("baseline_refused").is_not_null() & pl.col("slower_at_equal_load").is_null()
    reason = pl.concat_str(
        ["baseline_refused", "speed_unknown_reason"], separator="; ", ignore_nulls=True
    )
    return joined.with_columns(
        speed_unknown_reason=pl.when(unknown).then(reason).otherwise("speed_unknown_reason"),
        speed_unknown_code=pl.when(unknown)
        .then(pl.lit("other_server"))
        .otherwise("speed_unknown_code"),
    ).drop("baseline_refused")


def update_releases(releases: pl.DataFrame, frame: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The releases after the minute that ends ``at``.

    An unknown part keeps its value; the first release of a target is no change.
    """
    now = frame.filter(pl.col("release").is_not_null()).select(*_KEY, now="release")
    if now.is_empty():
        return releases
    rows = []
    joined = now.join(releases, on=_KEY, how="left", maintain_order="left")
    for instance, engine, there, before, since, older in joined.iter_rows():
        release, is_other = _continued(before, there)
        rows.append((instance, engine, release, *((at, before) if is_other else (since, older))))
    both = pl.DataFrame(rows, schema=RELEASES_SCHEMA, orient="row")
    silent = releases.join(now, on=_KEY, how="anti", maintain_order="left")
    return pl.concat([both, silent]).sort(_KEY)


def _continued(before: str | None, now: str) -> tuple[str, bool]:
    """The release now, and whether it differs in a part that both name.

    >>> _continued("image v:0.32, vllm 0.32.0", "vllm 0.32.0")
    ('image v:0.32, vllm 0.32.0', False)
    """
    if before is None or before == now:
        return now, False
    old, new = (
        {name: value for name, _, value in (part.partition(" ") for part in text.split(", "))}
        for text in (before, now)
    )
    if any(old[name] != new[name] for name in old.keys() & new.keys()):
        return now, True
    release = old | new
    return ", ".join(f"{name} {release[name]}" for name in sorted(release)), False


def _references(pairs: list[tuple[Baseline, TargetKey]]) -> pl.DataFrame:
    """The values of each target's baseline, under the target's own name."""
    baselines = {baseline.id: baseline for baseline, _ in pairs if baseline.reference}
    if not baselines:
        return no_reference()
    schema = {c: dtype for c, dtype in REFERENCE_SCHEMA.items() if c not in KEY_COLUMNS}
    rows = [baseline.reference for baseline in baselines.values()]
    remembered = pl.DataFrame(rows, schema).with_columns(baseline=pl.Series(list(baselines)))
    baseline_of_target = pl.DataFrame(
        [(*key, baseline.id) for baseline, key in pairs if baseline.id in baselines],
        schema=dict.fromkeys([*_KEY, "baseline"], pl.String),
        orient="row",
    )
    return baseline_of_target.join(
        remembered, on="baseline", how="left", maintain_order="left"
    ).select(list(REFERENCE_SCHEMA))
