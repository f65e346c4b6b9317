"""A service with an open incident: servers behind a Prometheus API, a webhook, and what it got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fakes.loopback import Answer, LoopbackServer, Request
from fakes.manual_clock import ManualClock
from fakes.prometheus_api import PrometheusApi, Series
from pytest import MonkeyPatch

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Source
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.settings.receivers import WebhookReceiver
from driftwatch.store.store import Store

# 01:00 UTC, minute 8 of each story, is when clocks in Berlin go from 02:00 to 03:00
BEGIN = datetime(2026, 3, 29, 0, 52, tzinfo=UTC)
SCRAPE_SECONDS = 15
# requests of the first server wait in these minutes; the fault lies inside
QUEUES_FROM, QUEUES_UNTIL, END = 1, 21, 26
FAULT_FROM, FAULT_UNTIL = 5, 16
RULES = """\
groups:
  - name: queues
    rules:
      - alert: Queues
        when: waiting_requests >= 5
        for: 1m
        keep_firing_for: 1m
        severity: page
        annotations: {summary: requests wait}
"""
COVERAGE = Path(__file__).parents[2] / "rules" / "coverage.yaml"
FIRING, RESOLVED = ("firing", "Queues"), ("resolved", "Queues")
LOST, BACK = ("firing", "CoverageLost"), ("resolved", "CoverageLost")

NOTHING = '{"status":"success","data":{"resultType":"matrix","result":[]}}'

Row = dict[str, float]
Alter = Callable[[float, Row], Row]


def during(change: Alter, first: float = FAULT_FROM, last: float = FAULT_UNTIL) -> Alter:
    """The change, in some minutes only."""
    return lambda minute, row: change(minute, row) if first <= minute < last else row


def gone(_: float, __: Row) -> Row:
    """Nobody knows of the server."""
    return {}


@dataclass(frozen=True)
class Server:
    """One server; ``alter``: (minute, metric → value) → what Prometheus has of it.

    A metric of a bucket is written ``name_bucket|le``. ``labels``: minute → labels of its own.
    """

    name: str
    waits: tuple[float, float] = (0, 0)
    alter: Alter = lambda _, row: row
    labels: Callable[[float], Mapping[str, str]] = lambda _: {}
    lookback_seconds: float = SCRAPE_SECONDS

    def series(self, minutes: int) -> list[Series]:
        """Its past."""
        points: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
        for at in range(1, minutes * 60, SCRAPE_SECONDS):
            minute = at / 60
            row = self.alter(minute, self._row(at))
            for metric, value in row.items():
                key = tuple(sorted((self._labels(metric) | self.labels(minute)).items()))
                points.setdefault(key, []).append((BEGIN.timestamp() + at, repr(value)))
        return [Series(dict(key), one, self.lookback_seconds) for key, one in points.items()]

    def _row(self, at: int) -> Row:
        first, last = self.waits
        return {
            "up": 1.0,
            "process_start_time_seconds": BEGIN.timestamp() - 3600.0,
            "vllm:num_requests_running": 4.0,
            "vllm:num_requests_waiting": 9.0 if first * 60 <= at < last * 60 else 0.0,
            "vllm:kv_cache_usage_perc": 0.1,
            "vllm:generation_tokens_total": 1e6 + 100.0 * at,
            "vllm:prompt_tokens_total": 1e6 + 100.0 * at,
        }

    def _labels(self, metric: str) -> dict[str, str]:
        name, _, le = metric.partition("|")
        labels = {"__name__": name, "instance": self.name, "job": "vllm"}
        if metric.startswith("vllm:"):
            labels |= {"engine": "0", "model_name": "m"}
        return labels | ({"le": le} if le else {})


def fleet(alter: Alter = lambda _, row: row, others: int = 3) -> list[Server]:
    """The server whose requests wait, and others that idle along; all altered alike."""
    waiting = Server("chat-0:8000", (QUEUES_FROM, QUEUES_UNTIL), alter)
    return [waiting, *(Server(f"chat-{n}:8000", alter=alter) for n in range(1, others + 1))]


class Api(PrometheusApi):
    """A Prometheus that can be stopped and started at its address.

    ``reached``: unix seconds of its own clock, which is ``behind_seconds``; it has no scrape after
    that, and none of what happens while it is ``frozen``.
    """

    behind_seconds = 0.0
    frozen = False

    def judge(self, request: Request) -> Answer:
        """As it is, with the time of its own clock."""
        answer = super().judge(request)
        if self.reached == float("inf"):
            return answer
        date = format_datetime(datetime.fromtimestamp(self.reached, UTC), usegmt=True)
        return replace(answer, headers={**answer.headers, "Date": date})

    def _evaluate(self, params: Mapping[str, str]) -> Answer:
        end = min(float(params.get("end", self.reached)), self.reached)
        if "start" in params:
            params = {
                **params,
                "start": params["start"],
                "end": repr(max(end, float(params["start"]))),
            }
            if self.reached < float(params["start"]):
                return Answer(200, NOTHING)
        return super()._evaluate(params)

    def stop(self) -> None:
        """Connections are refused from now on."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def start(self) -> None:
        """Answer again, at the same address."""
        self._http = ThreadingHTTPServer(
            self._http.server_address[:2],  # type: ignore[arg-type]
            self._http.RequestHandlerClass,
        )
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()


class Inbox(LoopbackServer):
    """Takes every page."""

    def judge(self, request: Request) -> Answer:
        """204."""
        return Answer(204)

    @property
    def pages(self) -> list[dict[str, Any]]:
        """What was posted, in order."""
        return [json.loads(request.body) for request in self.requests]


@dataclass
class Story:
    """A service, its clock, and the minutes that it lives through."""

    store: Store
    sources: Sequence[Source]
    inbox: Inbox
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGIN))
    apis: Sequence[Api] = ()
    rules: str = RULES
    folder: Path = Path()
    minute: float = 0.0
    ahead: float = 0.0  # minutes by which its clock is ahead of Prometheus's
    hooks: Sequence[str] = ("oncall",)  # receivers, each a path of the inbox
    pools: tuple[Pool, ...] = (Pool("chat"),)

    def __post_init__(self) -> None:
        if self.ahead:
            self.clock.set(BEGIN + timedelta(minutes=self.ahead))
        self.service = self.started()

    def plan(self) -> Plan:
        """Its own rule, the shipped one about coverage, and its pools."""
        path = self.folder / "queues.yaml"
        path.write_text(self.rules, encoding="utf-8")
        plan = plan_of_rules([path, COVERAGE])
        return replace(plan, pools=self.pools)

    def started(self) -> Service:
        """A process on the same database."""
        receivers = [
            Receiver(
                name,
                ("page", "ticket"),
                WebhookSender(name, WebhookReceiver(url=f"{self.inbox.address}/{name}")),
            )
            for name in self.hooks
        ]
        return Service(self.sources, self.plan(), self.store, receivers, self.clock)

    def restart(self) -> None:
        """Another process; its sources are its own."""
        self.service._collecting.end()
        self.service = self.started()

    def decide(self, minute: float) -> None:
        """One tick, whatever the clock said before; nothing is sent."""
        for api in self.apis:
            if not api.frozen:
                api.reached = BEGIN.timestamp() + 60 * minute - api.behind_seconds
        self.clock.set(BEGIN + timedelta(minutes=minute + self.ahead))
        self.service.tick_once()
        self.minute = minute

    def tick(self, minute: float) -> None:
        """One tick and its deliveries."""
        self.decide(minute)
        self.service.deliver_once()

    def until(self, minute: float, every: float = 1.0) -> list[tuple[str, str]]:
        """Tick up to a minute; (event, alert) of what arrived meanwhile."""
        before = len(self.inbox.requests)
        while self.minute < minute:
            self.tick(min(self.minute + every, minute))
        return [(page["event"], page["alert"]) for page in self.inbox.pages[before:]]

    def open_alerts(self) -> list[str]:
        """Alerts of the incidents that fire now."""
        every = self.store.open_incidents().values()
        return sorted(one.alert for one in every if one.state == "firing")


Told = tuple[Story, Api]
Tell = Callable[..., Told]


def source_of(api: PrometheusApi, name: str = "prometheus 0") -> PrometheusSource:
    """The servers of an API; with the name that a configuration gives its first source."""
    asker = PrometheusAsker(api.address, timeout_seconds=20.0)
    return PrometheusSource(asker, selector={"job": "vllm"}, settle_seconds=0.0, name=name)


@contextmanager
def stories(folder: Path) -> Iterator[Tell]:
    """`tell(servers)`: a service that watches these, and the Prometheus between.

    The machine's clock goes over to summer time in each story.
    """
    with ExitStack() as stack, MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()

        def tell(
            servers: list[Server], database: str = "", minutes: int = END + 4, **rest: Any
        ) -> Told:
            every = [one for server in servers for one in server.series(minutes)]
            api, inbox = stack.enter_context(Api(every)), rest.pop("inbox", None)
            inbox = inbox or stack.enter_context(Inbox())
            store = stack.enter_context(Store.open(database or str(folder / "d.db")))
            story = Story(store, [source_of(api)], inbox, apis=[api], folder=folder, **rest)
            stack.callback(lambda: story.service.stop())
            return story, api

        yield tell
    time.tzset()
