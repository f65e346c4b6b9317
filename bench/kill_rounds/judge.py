"""One round: processes that are killed one after another, and what arrived at the receivers."""

from __future__ import annotations

import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fakes.loopback import Answer, LoopbackServer, Request

from driftwatch.store.store import Store
from kill_rounds.points import POINTS, live_until_killed
from kill_rounds.world import BEGIN, QUEUES, TICKS, Place

# at these a receiver may have the page, and the store not know it: one may have just taken its page
# while another is about to get its own
MAY_REPEAT = ("at a statement", "at COMMIT", "before POST", "after POST")
RECEIVERS = ("oncall", "log")
AFTER_TICKS = 3
_LONGEST_SECONDS = 240
# passings of a point in one life: later ones are never reached
_PASSINGS: Mapping[str, int] = {
    "after fetch": TICKS,
    "before commit": TICKS,
    "at a statement": 60 * TICKS,
    "at COMMIT": 4 * TICKS,
    "after commit": TICKS,
    "before POST": 12,
    "after POST": 12,
}


class Inbox(LoopbackServer):  # type: ignore[misc]  # of tests/
    """Takes every page, and keeps each POST in order."""

    def judge(self, request: Request) -> Answer:
        """204."""
        return Answer(204)

    def posts(self, name: str) -> list[tuple[str, bytes]]:
        """Idempotency key and body of each POST to one receiver."""
        path = f"/{name}"
        return [(r.headers["idempotency-key"], r.body) for r in self.requests if r.path == path]


@dataclass(frozen=True)
class Verdict:
    """What one round showed."""

    kills: tuple[str, ...]  # points at which a process was killed
    lost: tuple[str, ...]  # receiver and key of what never arrived
    unequal: tuple[str, ...]  # of what arrived otherwise than undisturbed
    false_resolves: tuple[str, ...]  # of a resolve while requests wait, or before its page
    duplicates: int  # POSTs beyond the first of their key
    unpromised: tuple[str, ...]  # duplicates without a kill that may repeat

    @property
    def is_kept(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.unequal or self.false_resolves or self.unpromised)


def undisturbed(folder: Path, database: str) -> dict[str, dict[str, bytes]]:
    """receiver → key → body, of a service that nobody kills."""
    with Inbox() as inbox:
        _life(_place(folder, database, inbox), (1, TICKS))
        return {name: dict(inbox.posts(name)) for name in RECEIVERS}


def play(folder: Path, database: str, kills: Sequence[str], seed: int, expected: Any) -> Verdict:
    """One round with these kills, at passings and after outages that the seed draws."""
    chance = random.Random(seed)
    with Inbox() as inbox:
        place = _place(folder, database, inbox)
        tick, done = 1, []
        for point in kills:
            passing = chance.randint(1, _PASSINGS[point])
            if not _life(place, (tick, TICKS), point, passing):
                break
            done.append(point)
            # it stays away for up to two minutes; the next life begins at a tick of its own
            died = int((folder / "tick").read_text()) if (folder / "tick").exists() else tick
            tick = min(died + chance.randint(1, 4), TICKS)
        # what a killed process had claimed is due again when its claim is over
        _life(place, (tick, TICKS + AFTER_TICKS))
        with Store.open(database) as store:
            replaced = _replaced(store)
        posts = {name: inbox.posts(name) for name in RECEIVERS}
        return _verdict(tuple(done), posts, expected, replaced)


def _place(folder: Path, database: str, inbox: Inbox) -> Place:
    folder.mkdir(parents=True, exist_ok=True)
    return Place(folder, database, {name: f"{inbox.address}/{name}" for name in RECEIVERS})


def _life(place: Place, ticks: tuple[int, int], point: str = "none", passing: int = 0) -> bool:
    """One process up to its end; whether it was killed.

    Raises RuntimeError: it ended otherwise, or not at all.
    """
    # forked from a process that has imported everything and run nothing: polars has no thread yet
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kill_rounds.points"])
    process = context.Process(target=live_until_killed, args=(place, ticks, point, passing))
    process.start()
    process.join(_LONGEST_SECONDS)
    if process.exitcode not in (0, -9):
        process.kill()
        raise RuntimeError(f"a process ended with {process.exitcode} (point {point})")
    return process.exitcode == -9


def _verdict(
    kills: tuple[str, ...],
    posts: Mapping[str, list[tuple[str, bytes]]],
    expected: Mapping[str, Mapping[str, bytes]],
    replaced: Collection[tuple[str, str]],
) -> Verdict:
    lost, unequal, false, unpromised, duplicates = [], [], [], [], 0
    for name, arrived in posts.items():
        counts = Counter(key for key, _ in arrived)
        missing = expected[name].keys() - counts.keys()
        lost += [f"{name} {key}" for key in missing if (name, key) not in replaced]
        unequal += [f"{name} {k}" for k, body in arrived if expected[name].get(k) != body]
        duplicates += (more := sum(counts.values()) - len(counts))
        if more > sum(point in MAY_REPEAT for point in kills):
            unpromised.append(f"{name} {more}")
        false += [f"{name} {key}" for key in _false_resolves(arrived)]
    return Verdict(
        kills, tuple(sorted(lost)), tuple(unequal), tuple(false), duplicates, tuple(unpromised)
    )


def _replaced(store: Store) -> set[tuple[str, str]]:
    """(receiver, key) of pages that were never sent, and whose resolve was sent in their place."""
    found = set()
    for incident in store.incidents():
        rows = store.deliveries(incident.id)
        over = {one.receiver for one in rows if (one.event, one.status) == ("resolved", "sent")}
        for one in rows:
            if one.status == "withdrawn" and one.receiver in over:
                again = f"-{one.number}" if one.number else ""
                found.add((one.receiver, f"{one.subject}-{one.event}{again}"))
    return found


def _false_resolves(arrived: Sequence[tuple[str, bytes]]) -> list[str]:
    """Resolves that come before their page, or while requests still wait."""
    over, false = dict[str, str](), []
    for key, body in arrived:
        page = json.loads(body)
        incident = page["incident"]
        if page["event"] == "firing" and incident in over:
            false.append(over[incident])
        elif page["event"] == "resolved":
            over[incident] = key
            _, last = QUEUES[page["pool"]]
            if datetime.fromisoformat(page["times"]["resolved_at"]) < BEGIN + timedelta(
                minutes=last
            ):
                false.append(key)
    return false


def random_kills(chance: random.Random) -> list[str]:
    """One to three points."""
    return [chance.choice(POINTS) for _ in range(chance.randint(1, 3))]
