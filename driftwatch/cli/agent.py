"""``driftwatch agent``: this machine's GPUs as /metrics, where no dcgm-exporter runs."""

from __future__ import annotations

from datetime import timedelta

import click

from driftwatch.cli.options import Duration
from driftwatch.errors import UsageError


@click.command(name="agent")
@click.option(
    "--listen",
    default="127.0.0.1:9400",
    show_default=True,
    metavar="HOST:PORT",
    help="Where it is scraped; port 0 takes a free one.",
)
@click.option(
    "--interval",
    type=Duration(),
    default="15s",
    show_default=True,
    help="Time between two readings.",
)
def command(listen: str, interval: timedelta) -> None:
    """Read NVML on this machine and serve it as dcgm-exporter would: same names, labels, units.

    Needs no configuration and no rights beside /dev/nvidia*. A field that cannot be read has no
    series and is counted in driftwatch_agent_field_unread with its reason. Where the driver is
    not there (yet), it says so once and in driftwatch_agent_problem, and tries again. Serves
    /metrics, /healthz, /-/healthy and /-/ready until SIGTERM or Ctrl-C. Exit code 2: the address
    cannot be had.
    """
    from driftwatch.cli.logs import configure_logs, until_signal
    from driftwatch.clock import SystemClock
    from driftwatch.collect.nvml.source import NvmlSource
    from driftwatch.service.agent import Agent
    from driftwatch.service.endpoint import Endpoint

    address = _address(listen)
    log = configure_logs()
    clock = SystemClock()
    agent = Agent(NvmlSource(clock), interval.total_seconds(), clock)
    try:
        endpoint = Endpoint(address, agent.registry, agent.why_unhealthy, agent.why_not_ready)
    except UsageError as error:
        raise UsageError(error.message, help_text="give another --listen HOST:PORT") from error
    try:
        agent.start()
        host, port = endpoint.address
        url_host = f"[{host}]" if ":" in host else host
        log.info("serving", metrics=f"http://{url_host}:{port}/metrics")
        until_signal()
        log.info("stopping")
    finally:
        agent.stop()
        endpoint.close()


def _address(listen: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        UsageError: the text is not both.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--listen {listen!r}: not host:port, such as 127.0.0.1:9400")
    return host.strip("[]"), int(port)
