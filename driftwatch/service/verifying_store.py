"""Verifications and the store: what a restart must not forget, and what was advised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import orjson

from driftwatch.baselines.pinned import fingerprint
from driftwatch.model import Fingerprint, Incident, Slo, Target, TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.service.verifying import Advised, Opened, Started, Surroundings, Verifying
from driftwatch.store.advice import AdviceRow, VerificationRow
from driftwatch.store.store import Store
from driftwatch.verify.changes import Running
from driftwatch.verify.verification import VERIFICATION, Verification

_MEMORY = "tick.verifying"


def kept_verifications(found: Iterable[Verification]) -> list[VerificationRow]:
    """As rows of the store."""
    return [
        VerificationRow(
            id=one.id,
            instance=one.instance,
            engine=one.engine,
            pool=one.pool,
            opened_at=one.opened_at,
            verdict=one.verdict,
            document=VERIFICATION.document(one),
            closed_at=one.closed_at,
            incident_id=one.incident_id,
        )
        for one in found
    ]


def verifying_memory(before: Verifying | None, state: Verifying) -> dict[str, bytes]:
    """What the next process must know besides open verifications; nothing where all is as before.

    Args:
        before: as it was last written; None = never.
    """
    if before == state:
        return {}
    document = {
        "running": [{**_key(key), **_running(one)} for key, one in sorted(state.running.items())],
        "started": [
            {
                **_key(key),
                "at": _text(one.at),
                "before": _running(one.before),
                "running_max": one.running_max,
            }
            for key, one in sorted(state.started.items())
        ],
        "opened": [
            {
                **_key(key),
                "id": one.verification.id,
                "looks": one.looks,
                "next_at": _text(one.next_at),
            }
            for key, one in sorted(state.opened.items())
        ],
    }
    return {_MEMORY: orjson.dumps(document, option=orjson.OPT_SORT_KEYS)}


def verifying_from(store: Store) -> Verifying:
    """What the last process left; nothing in a store that never had a tick."""
    kept = store.memory().get(_MEMORY)
    if kept is None:
        return Verifying()
    document = orjson.loads(kept)
    there = {one.id: VERIFICATION.value(one.document) for one in store.open_verifications()}
    return Verifying(
        running={_of(row): _running_from(row) for row in document["running"]},
        started={
            _of(row): Started(
                _time(row["at"]), _running_from(row["before"]), float(row["running_max"])
            )
            for row in document["started"]
        },
        opened={
            _of(row): Opened(there[row["id"]], int(row["looks"]), _time(row["next_at"]))
            for row in document["opened"]
            if row["id"] in there
        },
    )


def surroundings(
    plan: Plan,
    targets: Mapping[TargetKey, Target],
    past: PastMinutes,
    advised: Callable[[TargetKey, str, datetime, datetime], Sequence[Advised]],
    failed: Callable[[str], None] | None = None,
) -> Surroundings:
    """What a step asks, of a plan.

    Args:
        failed: told of a comparison that failed, by its traceback; None = nobody is.
    """

    def told(target: Target) -> Fingerprint:
        return fingerprint(target, plan)

    def slo_of(target: Target) -> Slo | None:
        slo = plan.pool_of(target).slo
        return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None

    return Surroundings(past, advised, targets, told, slo_of, failed)


class StoredAdvice:
    """What the store knows of advice, and pages that advised without a replay."""

    def __init__(self, store: Store, incidents: Callable[[datetime], Iterable[Incident]]) -> None:
        self._store = store
        self._incidents = incidents

    def __call__(
        self, key: TargetKey, pool: str, since: datetime, until: datetime
    ) -> Sequence[Advised]:
        """What was advised for a target or its pool in [since, until)."""
        kept = self._store.advices(since, until)
        found = advised_in(kept, key, pool)
        return found or paged(self._incidents(since), key, pool, since, until)


def advised_in(kept: Iterable[AdviceRow], key: TargetKey, pool: str) -> list[Advised]:
    """Stored answers that are about a target or another of its pool."""
    return [
        Advised(
            one.instance,
            one.engine,
            one.pool,
            one.at,
            _with_targets(one.document),
            one.incident_id,
        )
        for one in kept
        if (one.instance, one.engine) == key or one.pool == pool
    ]


def _with_targets(document: Mapping[str, Any]) -> dict[str, Any]:
    """The recommendation, its forecast with the targets and the load that it was made for."""
    said = dict(document.get("recommendation") or {})
    if said.get("forecast"):
        load = "offered_requests_per_second"
        said["forecast"] = {
            **said["forecast"],
            "slo": document.get("slo"),
            load: document.get(load),
        }
    return said


def paged(
    incidents: Iterable[Incident], key: TargetKey, pool: str, since: datetime, until: datetime
) -> list[Advised]:
    """Pages that advised a change; they promise no number."""
    found = []
    for incident in incidents:
        labels, at = incident.target, incident.firing_at
        said = (incident.page or {}).get("recommendation")
        if at is None or said is None or not since <= at < until:
            continue
        own = (labels.get("instance"), labels.get("engine", "0")) == key
        if own or ("instance" not in labels and labels.get("pool") == pool):
            found.append(
                Advised(
                    labels.get("instance", key.instance),
                    labels.get("engine", key.engine),
                    pool,
                    at,
                    said,
                    incident.id,
                )
            )
    return sorted(found, key=lambda one: one.at)


def _key(key: TargetKey) -> dict[str, str]:
    return {"instance": key.instance, "engine": key.engine}


def _of(row: dict[str, Any]) -> TargetKey:
    return TargetKey(row["instance"], row["engine"])


def _running(one: Running) -> dict[str, Any]:
    return {
        "fingerprint": asdict(one.fingerprint),
        "inferred_max_num_seqs": one.inferred_max_num_seqs,
    }


def _running_from(row: dict[str, Any]) -> Running:
    return Running(Fingerprint(**row["fingerprint"]), row["inferred_max_num_seqs"])


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
