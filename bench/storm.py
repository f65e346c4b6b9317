"""A storm: every pool of a fleet fires in one tick, one receiver takes pages and another hangs.

    python bench/storm.py [--servers 10000] [--pools 300]

Timed is the tick, and from its end to the last page's arrival. Then single pages beside the
receiver that hangs, each from its commit.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import structlog

for name in ("", "bench", "tests", "tests/service"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / name))

from fakes.loopback import Answer, LoopbackServer, Request  # noqa: E402
from fakes.manual_clock import ManualClock  # noqa: E402
from kill_rounds.world import BEGIN, RULES, TICK_SECONDS, KeptSource  # noqa: E402
from outbox_cases import commit, planned  # type: ignore[import-not-found] # noqa: E402

from driftwatch.clock import SystemClock  # noqa: E402
from driftwatch.collect.schema import scrape_frame  # noqa: E402
from driftwatch.model import Target, TargetKey  # noqa: E402
from driftwatch.pipeline.plan import Pool  # noqa: E402
from driftwatch.receivers.registry import Receiver  # noqa: E402
from driftwatch.receivers.webhook import WebhookSender  # noqa: E402
from driftwatch.service.configuration import plan_of_rules  # noqa: E402
from driftwatch.service.metrics import OwnMetrics  # noqa: E402
from driftwatch.service.outbox import Outbox  # noqa: E402
from driftwatch.service.run import Service  # noqa: E402
from driftwatch.settings.receivers import WebhookReceiver  # noqa: E402
from driftwatch.store.store import Store  # noqa: E402

LAST_SECONDS, P99_SECONDS, SINGLE_PAGES = 10.0, 5.0, 100


class Inbox(LoopbackServer):  # type: ignore[misc]  # of tests/
    """Notes when each page arrives; ``hangs``: it never answers."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self._hangs, self.arrived, self.came = hangs, list[float](), threading.Event()

    def judge(self, request: Request) -> Answer:
        """204, or nothing."""
        self.arrived.append(time.monotonic())
        self.came.set()
        return Answer(204, hang=self._hangs)


class Storm(KeptSource):
    """Servers that all wait from the first minute on."""

    def __init__(self, servers: int, pools: int) -> None:
        super().__init__()
        one = self._frame.filter(pl.col("instance") == "chat-0:8000").drop("instance")
        waits = one.with_columns(waiting_requests=pl.lit(9.0))
        names = [f"server-{n}:8000" for n in range(servers)]
        every = pl.DataFrame({"instance": names}).join(waits, how="cross")
        self._frame = scrape_frame([]).vstack(every.select(scrape_frame([]).columns))
        self._targets = {
            TargetKey(name, "0"): Target(TargetKey(name, "0"), {"pool": f"pool-{n % pools}"})
            for n, name in enumerate(names)
        }


def sender(name: str, inbox: Inbox) -> WebhookSender:
    return WebhookSender(name, WebhookReceiver.model_validate({"url": f"{inbox.address}/{name}"}))


def storm(folder: Path, servers: int, pools: int, well: Inbox, hung: Inbox) -> tuple[float, ...]:
    """How many pages came, the seconds of the tick, and from its end to the last page."""
    rules = folder / "queues.yaml"
    rules.write_text(RULES)
    both = (("well", well), ("hung", hung))
    receivers = [Receiver(name, ("page",), sender(name, inbox)) for name, inbox in both]
    clock = ManualClock(BEGIN)
    with Store.open(folder / "storm.db") as store:
        named = tuple(Pool(f"pool-{n}", {"pool": f"pool-{n}"}) for n in range(pools))
        plan = replace(plan_of_rules([rules]), pools=named)
        service = Service([Storm(servers, pools)], plan, store, receivers, clock)
        service.outbox.start()
        began = ended = time.monotonic()
        while not store.open_incidents() or not well.came.is_set():
            clock.advance(timedelta(seconds=TICK_SECONDS))
            began = time.monotonic()
            service.tick_once()
            ended = time.monotonic()
            well.came.wait(0.5)
        firing = sum(one.state == "firing" for one in store.open_incidents().values())
        while len(well.arrived) < firing and time.monotonic() - began < 300:
            time.sleep(0.01)
        threading.Thread(target=service.stop, daemon=True).start()
        return firing, ended - began, max(well.arrived) - ended


def singles(folder: Path, well: Inbox, hung: Inbox) -> Sequence[float]:
    """Seconds from a page's commit to its arrival, beside the receiver that hangs."""
    found = []
    with Store.open(folder / "singles.db") as store:
        outbox = Outbox(store, SystemClock(), OwnMetrics())
        outbox.adopt({"well": sender("well", well), "hung": sender("hung", hung)})
        outbox.start()
        for number in range(SINGLE_PAGES):
            well.came.clear()
            commit(store, *(planned(number, "firing", name) for name in ("well", "hung")))
            committed = time.monotonic()
            outbox.wake()
            well.came.wait(60)
            found.append(time.monotonic() - committed)
        threading.Thread(target=outbox.stop, daemon=True).start()
    return found


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--servers", type=int, default=10_000)
    options.add_argument("--pools", type=int, default=300)
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with (
        tempfile.TemporaryDirectory() as name,
        Inbox(hangs=False) as well,
        Inbox(hangs=True) as hung,
    ):
        pages, tick, last = storm(Path(name), given.servers, given.pools, well, hung)
        found = singles(Path(name), well, hung)
    p99 = float(np.quantile(found, 0.99))
    print("servers  pools  pages  tick s  last page after it s  p99 beside a hung receiver s")
    print(
        f"{given.servers:7,}  {given.pools:5}  {pages:5.0f}  {tick:6.2f}  {last:11.2f}  {p99:28.3f}"
    )
    return int(last > LAST_SECONDS or p99 > P99_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
