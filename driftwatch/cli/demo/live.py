"""``driftwatch demo --scenario NAME --live``: its servers over HTTP, until the scenario ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from driftwatch.cli.options import Progress

if TYPE_CHECKING:
    from driftwatch.fleet.scenario.model import Scenario

_BEFORE_SECONDS = 120.0  # of real time, before the first thing happens


def serve_scenario(scenario: Scenario, seed: int, *, for_seconds: float | None) -> None:
    """Serve the pages; print their addresses and how to watch them.

    At the scenario's pace: faster, rates would grow and latencies would not. At its end the
    servers are gone: a page that stands still is a hung engine.

    Args:
        for_seconds: end after so many seconds; None = when the scenario ends.
    """
    import time

    from driftwatch.cli.logs import until_signal
    from driftwatch.fleet.generate import generate
    from driftwatch.fleet.live import Clock, LiveFleet
    from driftwatch.fleet.servers import seconds_of
    from driftwatch.notify.numbers import duration

    first = min((effect.at for effect in scenario.truth.effects), default=0.0)
    progress = Progress("making")
    chunks = []
    for chunk in generate(scenario, seed, pages=True):
        chunks.append(chunk)
        progress(chunk.number + 1, scenario.servers)
    progress.close()
    begin = max(0.0, first - _BEFORE_SECONDS)
    remaining = scenario.duration - begin
    clock = Clock(time.monotonic, seconds_of(scenario)[0] + begin)
    with LiveFleet(scenario, chunks, clock) as fleet:
        del chunks
        for name, url in fleet.urls.items():
            click.echo(f"{name}\t{url}")
        for name, url in fleet.gpu_urls.items():
            click.echo(f"{name}\t{url}")
        click.echo(
            f"from {duration(begin)} of the scenario on; something happens after "
            f"{duration(first - begin)}, and after {duration(remaining)} it ends",
            err=True,
        )
        click.echo(f"next: driftwatch watch {' '.join(fleet.urls.values())}", err=True)
        until_signal(remaining if for_seconds is None else min(for_seconds, remaining))
        if fleet.ended:
            click.echo("the scenario is over: its servers are gone", err=True)
