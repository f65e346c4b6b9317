"""A server's own last days: what "before" means where nobody has pinned a baseline.

They serve measures that no daily rhythm moves by half: tokens of a decode step, prefix hits, and
given-up requests. The usual value is the median of up to seven days, so that one bad day does not
become it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import MEASURED, REFERENCE_SCHEMA, combined
from driftwatch.detect.references import LastDays, Reference, References
from driftwatch.model import TargetKey

MEASURES = (
    "tokens_per_output",
    "spec_decode_acceptance_ratio",
    "prefix_cache_hit_ratio",
    "given_up_ratio",
)
KEPT_DAYS = 7
LONGEST_ABSENCE = timedelta(days=KEPT_DAYS)  # who comes back later begins anew
LEAST_SECONDS = 12 * 3600.0  # of a day that were scraped


def day_before(midnight: datetime) -> tuple[datetime, datetime]:
    """The 24 hours that are learnt at a midnight. They end an hour before it, so that the store has
    all of them, however many minutes a tick covers.
    """
    return midnight - timedelta(hours=25), midnight - timedelta(hours=1)


def is_due(at: datetime) -> bool:
    """Whether a day is learnt at this end of a minute."""
    utc = at.astimezone(UTC)
    return utc.hour == utc.minute == 0


def learn_day(minutes: pl.DataFrame, references: References, midnight: datetime) -> list[Reference]:
    """The last days of each target with one more day.

    ``minutes``: MINUTE_SCHEMA without histograms, those of :func:`day_before`; minutes or longer.
    """
    day = (midnight.astimezone(UTC) - timedelta(hours=12)).date()
    scraped = minutes.filter(pl.col("scrapes") > 0)
    rows = scraped.group_by(*KEY, "pool", maintain_order=True).agg(
        **{name: MEASURED[name] for name in MEASURES},
        observed=pl.col("duration_seconds").sum(),
    )
    found = []
    for row in rows.filter(pl.col("observed") >= LEAST_SECONDS).iter_rows(named=True):
        pool, key = row["pool"] or "", TargetKey(row["instance"], row["engine"])
        known = [one for one in references.last_days(pool, key).days if one[0] < day]
        new = (day, *(row[name] for name in MEASURES))
        document = LastDays(days=(*known, new)[-KEPT_DAYS:])
        found.append(Reference("last_days", pool, key, midnight, document))
    return found


def with_last_days(
    measured: pl.DataFrame, declared: pl.DataFrame, references: Iterable[Reference], before: date
) -> pl.DataFrame:
    """REFERENCE_SCHEMA: the ``measured`` rows; of other targets the medians of their own days.

    ``declared``: rows of ``tuned_for``; ``before``: days before this one count.
    """
    newest: dict[TargetKey, LastDays] = {}  # a pool's old name may have documents too
    for one in sorted(references, key=lambda one: one.learnt_at):
        if isinstance(one.document, LastDays) and one.key is not None:
            newest[one.key] = one.document
    rows = []
    for key, document in newest.items():
        days = [day for day in document.days if day[0] < before]
        rows.append((*key, *(_median([day[k] for day in days]) for k in range(1, 5))))
    names = [*KEY, *(f"reference_{name}" for name in MEASURES)]
    schema = {name: REFERENCE_SCHEMA[name] for name in names}
    own = pl.DataFrame(rows, schema=schema, orient="row")
    return combined(measured, declared.update(own, on=KEY, how="full"))


def _median(values: Sequence[float | date | None]) -> float | None:
    known = sorted(value for value in values if isinstance(value, float))
    if not known:
        return None
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
