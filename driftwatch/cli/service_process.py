"""The service of ``driftwatch run`` from its start to its end; on PostgreSQL as a standby first."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from driftwatch.cli.logs import Hangups
from driftwatch.clock import Clock
from driftwatch.database_place import PostgresPlace
from driftwatch.pipeline.plan import Plan
from driftwatch.service.endpoint import Endpoint
from driftwatch.service.leadership import Leadership, lease_seconds
from driftwatch.service.membership import Membership
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.receivers import Receiver
from driftwatch.service.reload import LOOK_SECONDS, Reload
from driftwatch.service.run import Service
from driftwatch.settings import Settings
from driftwatch.store.lease import Leases

# of a process whose lease was taken over: its supervisor is to start it again
EXIT_LEASE_LOST = 1


class Decided:
    """What is decided with: a standby reloads it for the service that it may become."""

    def __init__(self, plan: Plan, receivers: Sequence[Receiver]) -> None:
        self.plan, self.receivers = plan, receivers
        self.service: Service | None = None

    def adopt(self, plan: Plan, receivers: Sequence[Receiver]) -> None:
        """Take another plan and other receivers."""
        self.plan, self.receivers = plan, receivers
        if self.service is not None:
            self.service.adopt(plan, receivers)


@contextmanager
def leadership_of(
    settings: Settings, metrics: OwnMetrics, name: str | None
) -> Iterator[Leadership | None]:
    """This process's part in the lease of a PostgreSQL; None on SQLite, where a lock is enough."""
    place = settings.database_place
    if not isinstance(place, PostgresPlace):
        metrics.watch.leader.set(1)
        yield None
        return
    seconds = lease_seconds(settings.interval)
    member = (name or socket.gethostname()) if settings.shards > 1 else None
    leadership = Leadership(Leases(place, seconds), seconds, member=member)
    metrics.watch.leader.set_function(lambda: float(leadership.may_act()))
    metrics.watch.fence.set_function(
        lambda: float(leadership.lease.fence if leadership.lease else 0)
    )
    try:
        yield leadership
    finally:
        leadership.end()


@contextmanager
def membership_of(
    settings: Settings, name: str | None, clock: Clock
) -> Iterator[Membership | None]:
    """This process's part where pools are dealt to shards; None where one process watches all.

    Raises StoreError: as :meth:`Membership.join`.
    """
    place = settings.database_place
    if settings.shards == 1 or not isinstance(place, PostgresPlace):
        yield None
        return
    seconds = lease_seconds(settings.interval)
    name = name or socket.gethostname()
    membership = Membership(Leases(place, seconds), name, settings.shards, seconds, clock.now)
    try:
        membership.join(seconds + 1.0)
        yield membership
    finally:
        membership.end()


def serve(
    watching: Callable[[], Service],
    settings: Settings,
    metrics: OwnMetrics,
    leadership: Leadership | None,
    hangups: Hangups,
    reload: Reload,
    membership: Membership | None = None,
) -> int:
    """Wait for the lease, then watch, and answer on ``listen``, until a signal; the exit code.

    ``watching``: makes the service from what is stored then; ``membership``: of one that shares the
    shards with others: it watches at once what it takes, and leads when nobody does.
    """
    log = structlog.get_logger()
    wait = leadership or _Starting()
    endpoint = Endpoint(
        settings.listen_address, metrics.of_standby, wait.why_unhealthy, wait.why_not_ready
    )
    service = None
    try:
        host, port = endpoint.address
        page = f"http://{host}:{port}/metrics"
        if (
            leadership is not None
            and membership is None
            and not _led(leadership, hangups, reload, page)
        ):
            return 0
        service = watching()
        ready = service.why_not_ready

        unhealthy = service.why_unhealthy

        def why_not_ready() -> str | None:
            part = membership or leadership
            return (part.why_not_ready() if part else None) or ready()

        def why_unhealthy() -> str | None:
            return (membership.why_unhealthy() if membership else None) or unhealthy()

        endpoint.serve(metrics.registry, why_unhealthy, why_not_ready)
        hangups.listen()  # what is on its way from now on is to end
        service.start()
        if membership is not None and leadership is not None:
            membership.start(
                service.tick_soon, partial(_lead, leadership, membership, service, hangups)
            )
        log.info(
            "watching",
            rules=reload.rules,
            sources=len(settings.sources),
            database=str(settings.database_place),
            metrics=page,
        )
        hangups.loop(reload.look, reload.reload, min(settings.interval, LOOK_SECONDS))
        log.info("stopping")
    finally:
        if service is not None:
            service.stop()
        endpoint.close()
    return EXIT_LEASE_LOST if leadership is not None and leadership.lost else 0


def _led(leadership: Leadership, hangups: Hangups, reload: Reload, page: str) -> bool:
    """Wait until this process leads; False: a signal came first."""
    looked_at = time.monotonic()

    def look() -> bool:
        nonlocal looked_at
        if leadership.campaign():
            return True
        if time.monotonic() - looked_at >= LOOK_SECONDS:
            looked_at = time.monotonic()
            reload.look()
        return False

    leads = leadership.campaign()
    if not leads:
        structlog.get_logger().info("waiting", metrics=page)
        leads = hangups.loop(look, reload.reload, leadership.each_seconds)
    if leads:
        leadership.keep(hangups.end)
    return leads


def _lead(
    leadership: Leadership, membership: Membership, service: Service, hangups: Hangups
) -> None:
    """Lead the processes that share the shards, where none does and this one's clock is right."""
    if membership.is_clock_wrong:
        leadership.resign()
    elif leadership.lease is None and leadership.campaign():
        leadership.keep(hangups.end)
        service.lead(leadership.lease)


class _Starting:
    """A process that nothing but its own start keeps from watching."""

    def why_unhealthy(self) -> str | None:
        return None

    def why_not_ready(self) -> str | None:
        return "it starts"
