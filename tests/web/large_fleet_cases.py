"""One recorded server, many times: a store with as many targets, pools and incidents as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import orjson
import polars as pl

from driftwatch.baselines.rows import row_of
from driftwatch.database_place import place_of
from driftwatch.detect.baselines import Baseline
from driftwatch.detect.reference_minutes import baseline_of_minutes
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.matchers import Matcher
from driftwatch.model import Incident, Transition
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store import Store, TickRecord
from driftwatch.web.database import WebDatabase
from driftwatch.web.forecast import Forecast
from driftwatch.web.registry import pages

MINUTE = timedelta(minutes=1)
FORECAST_ID, WEEK = "20261121083000-0a1b2c3d", "2026-W47"
TARGETS_OF_A_POOL = 50
# of so many incidents one is resolved, has a note, a silence, is spoken for by the first
_RESOLVED, _NOTED, _SILENCED, _MEMBERS = 4, 3, 10, 5


class Size(NamedTuple):
    """How large a store is."""

    targets: int
    incidents: int
    pools: int = 0  # 0: so many that each has TARGETS_OF_A_POOL


def instance_of(number: int) -> str:
    """The name of a target."""
    return f"vllm-{number:05}.prod.example.com:8000"


def pool_of(number: int, size: Size) -> str:
    """The pool of a target."""
    pools = size.pools or max(1, size.targets // TARGETS_OF_A_POOL)
    return f"pool-{number % pools:03}"


def incident_id(number: int) -> str:
    """The id of an incident."""
    return f"{number:012x}"


def paths_of(size: Size) -> list[str]:
    """An address of every page, and of pages that look for more than most."""
    named = {
        "alert": "LengthDrift",
        "forecast_id": FORECAST_ID,
        "incident_id": incident_id(1),
        "pool": pool_of(3, size),
        "target": instance_of(2),
        "week": WEEK,
    }
    plain = [page.path.replace(":path", "").format(**named) for page in pages()]
    until = quote("2026-11-21T08:26:00Z")
    return [
        *plain,
        "/fleet?size=200&sort=speed",
        "/fleet?q=prod&state=unknown",
        f"/incidents/{incident_id(0)}",
        f"/incidents/{incident_id(_MEMBERS)}",
        "/incidents?q=prod&size=200",
        f"/incidents?state=open&pool={pool_of(1, size)}",
        f"/targets/{instance_of(0)}?to={until}",
        "/undelivered?size=200",
        "/silences?matchers=pool%3Dpool-001",
        f"/baselines?of={instance_of(3)}",
        f"/doctor?pool={pool_of(1, size)}",
    ]


def replicate(recorded: Path, page_id: str, place: Path | str, size: Size, end: datetime) -> None:
    """Write a store: each target has the recorded one's last minutes, each incident its page.

    Some incidents are resolved, noted, silenced or spoken for by the pool's; each has deliveries.
    Every pool and one target in ten has a baseline.

    ``recorded``: a database of one target that ends at ``end``; ``page_id``: its incident.
    """
    with Store.open(recorded, migrate=False) as one:
        minutes = one.past(end - 10 * MINUTE, end).drop("seconds")
        scrapes = one.scrapes(end - 5 * MINUTE, end + MINUTE)
        page, memory, report = one.incident(page_id), dict(one.memory()), one.report(WEEK)
    rows = [(instance_of(n), pool_of(n, size)) for n in range(size.targets)]
    names = pl.DataFrame(rows, ["instance", "pool"], orient="row")
    memory["tick"] = _with_targets(memory["tick"], names)
    every = list(_incidents(page, size))
    with Store.open(place) as store:
        for at in minutes["end"].unique().sort():
            own = minutes.filter(pl.col("end") == at).drop("instance", "pool")
            brought = scrapes.filter(pl.col("time").is_between(at - MINUTE, at, closed="left"))
            brought = brought.drop("instance").join(names.select("instance"), how="cross")
            store.commit_tick(
                TickRecord(
                    at - MINUTE,
                    at,
                    minutes=own.join(names, how="cross").select(minutes.columns),
                    scrapes=brought.select(scrapes.columns) if len(brought) else None,
                    memory=memory,
                )
            )
        _write_incidents(store, every, end)
        store.add_baselines([row_of(one) for one in _baselines(minutes, names, end)])
        store.write_report(WEEK, report or {}, (), end)
    _write_forecast(place, end)


def _write_forecast(place: Path | str, end: datetime) -> None:
    forecast = Forecast(
        forecast_id=FORECAST_ID,
        incident_id=incident_id(1),
        target=instance_of(1),
        by="Ana",
        at=end,
        traffic_until=end,
        what_if={"replicas": 2.0},
        state="no forecast",
        answers=("no request finished",),
    )
    database = WebDatabase(place_of(place))
    database.writer().keep_forecast(FORECAST_ID, forecast.model_dump_json().encode())
    database.close()


def _with_targets(document: bytes, names: pl.DataFrame) -> bytes:
    stored = orjson.loads(document)
    (one,) = stored["targets"]
    stored["targets"] = [
        {
            **one,
            "instance": instance,
            "labels": {**one["labels"], "instance": instance, "model_name": pool},
        }
        for instance, pool in names.iter_rows()
    ]
    return orjson.dumps(stored)


def _incidents(page: Incident, size: Size) -> Iterator[Incident]:
    """The first is of a pool, and speaks for others."""
    speaker = f"{page.key} of a pool"
    for number in range(size.incidents):
        target = {**page.target, "instance": instance_of(number), "pool": pool_of(number, size)}
        one = replace(page, id=incident_id(number), key=f"{page.key} {number}", target=target)
        if number == 0:
            concerned = {"targets": 2, "of_targets": 9, "first": [instance_of(0), instance_of(1)]}
            yield replace(
                one,
                key=speaker,
                target={"pool": target["pool"]},
                page={**(page.page or {}), "concerned": concerned},
                extent=2,
                extent_at=page.started_at,
            )
        elif number % _MEMBERS == 0:
            yield replace(one, part_of=speaker)
        else:
            yield one


def _write_incidents(store: Store, every: list[Incident], end: datetime) -> None:
    planned = [
        PlannedDelivery(one.id, "firing", receiver, "first", one.page or {}, one.started_at)
        for one in every
        for receiver in ("oncall", "chat")
    ]
    store.commit_tick(TickRecord(end, end, incidents=every, deliveries=planned))
    for number, one in enumerate(every):
        if number % _NOTED == 0:
            store.note_action("note", "Ana", end, incident_id=one.id, comment="looks like a batch")
        if number % _SILENCED == 0:
            matcher = Matcher("instance", "=", instance_of(number))
            until = end + timedelta(hours=2)
            store.add_silence([matcher], until=until, by="Ben", at=end, comment=f"move {number}")
    over = [one for number, one in enumerate(every) if number % _RESOLVED == _RESOLVED - 1]
    ids = {one.id for one in over}
    resolved = [replace(one, state="resolved", resolved_at=end) for one in over]
    store.commit_tick(
        TickRecord(
            end,
            end,
            incidents=[one for one in store.open_incidents().values() if one.id not in ids],
            transitions=[Transition(one, "resolved", end) for one in resolved],
        )
    )


def _baselines(minutes: pl.DataFrame, names: pl.DataFrame, end: datetime) -> Iterator[Baseline]:
    whole = Baseline(
        id="b00000000000",
        scope="pool",
        instance=None,
        engine=None,
        pool="",
        since=minutes["end"][0] - MINUTE,
        until=end,
        accepted_by="Ana",
        accepted_at=end,
        why="as it was tuned",
        arming="fewer than 60 minutes",
        reference=baseline_of_minutes(minutes.select(*MINUTE_SCHEMA)),
    )
    for number, pool in enumerate(names["pool"].unique(maintain_order=True)):
        yield replace(whole, id=f"b{number:011x}", pool=pool)
    own = replace(whole, scope="target", engine=str(minutes["engine"][0]))
    for number, (instance, pool) in enumerate(names.gather_every(10).rows()):
        yield replace(own, id=f"c{number:011x}", instance=instance, pool=pool)
