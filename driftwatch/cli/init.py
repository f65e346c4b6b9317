"""``driftwatch init``: look at what is there and write a commented configuration."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import DEFAULT_CONFIG
from driftwatch.cli.options import PATH, labels_of, option, refuse_file
from driftwatch.cli.printer import print_wrapped, write_file
from driftwatch.errors import NoVerdict, SourceError, Unavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from driftwatch.collect.prometheus.client import PrometheusAsker
    from driftwatch.onboarding.text import Written


_NO_PAGE = "does vLLM answer there? Its address is such as http://host:8000/metrics"


@click.command(name="init")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@option("--prometheus", str, "A Prometheus-compatible API to look at.", metavar="URL")
@option("--match", str, "Only series with this label.", multiple=True, metavar="LABEL=VALUE")
@option("--bearer-token-file", PATH, "File with the bearer token of the API.")
@option("--username", str, "User of the API.")
@option("--password-file", PATH, "Password of that user.")
@option("--tenant", str, "Tenant of Mimir, Cortex or Thanos (header X-Scope-OrgID).")
@option("--ca-file", PATH, "CA certificates (PEM) to check the API's with.")
@option("-o --output", PATH, "File to write; without it stdout.")
def command(
    urls: tuple[str, ...],
    prometheus: str | None,
    match: tuple[str, ...],
    output: Path | None,
    **credentials: str | Path | None,
) -> None:
    """Look at an API (--prometheus) or at /metrics (URL), and write a configuration.

    A comment names the origin of each value; the end of the file lists what is missing. With -o it
    also writes schemas/config.schema.json: an editor completes and checks the file with it.
    Exit code 4: no vLLM server found.
    """
    for url in (*urls, *([prometheus] if prometheus else [])):
        refuse_file(url, "URL")
    if (prometheus is None) == (not urls):
        raise UsageError(
            "where to look: name vLLM's /metrics pages, or a Prometheus that scrapes them"
            if prometheus is None
            else "name /metrics pages or a Prometheus, not both",
            help_text=f"driftwatch init http://host:8000/metrics -o {DEFAULT_CONFIG}, or "
            f"driftwatch init --prometheus http://prometheus:9090 -o {DEFAULT_CONFIG}",
        )
    if output is not None and output.exists():
        raise UsageError(f"{output} is there already", help_text="remove it, or name another")
    given = {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in credentials.items()
        if value is not None
    }
    if prometheus is None:
        if match or given:
            raise UsageError("--match and credentials are for --prometheus")
        configuration = _of_pages(urls)
    else:
        basic = {name: given.pop(name) for name in ("username", "password_file") if name in given}
        if len(basic) == 1:
            raise UsageError("give --username together with --password-file")
        options: dict[str, Any] = {"prometheus": prometheus, "match": _labels(match), **given}
        configuration = _of_api(options | ({"basic_auth": basic} if basic else {}))
    if output is None:
        click.echo(configuration.text, nl=False)
        click.echo(f"next: driftwatch init … -o {DEFAULT_CONFIG}", err=True)
        return
    from driftwatch.cli.catalogue import schema_text

    line = "# yaml-language-server: $schema=schemas/config.schema.json"
    write_file(output, f"{line}\n{configuration.text}")
    schema = output.parent / "schemas" / "config.schema.json"
    with suppress(OSError):  # the file tells why it cannot be written
        schema.parent.mkdir(parents=True, exist_ok=True)
    write_file(schema, schema_text("config") + "\n")
    click.echo(f"wrote {output}, and {schema} for your editor. Missing:")
    for sentence in configuration.missing:
        print_wrapped(f"- {sentence}", piped_too=True)
    click.echo(f"next: driftwatch doctor -c {output}")


def _labels(match: Sequence[str]) -> dict[str, str]:
    labels = labels_of(match)
    for name, values in labels.items():
        if len(values) > 1:
            raise UsageError(
                f"--match {name} is given twice: a series has one value of a label",
                help_text="write a configuration for each value",
            )
    return {name: values[0] for name, values in labels.items()}


def _of_api(options: Mapping[str, Any]) -> Written:
    """The configuration for an API; ``options``: the keys of its source.

    Raises UsageError: an address or a file that cannot be used; NoVerdict: the API does not answer,
    or knows no vLLM server.
    """
    from driftwatch.clock import SystemClock
    from driftwatch.collect.http import what_to_check
    from driftwatch.collect.inventory import discover
    from driftwatch.onboarding.discovery import found_pools
    from driftwatch.onboarding.text import written
    from driftwatch.service.probes import asker_of, checked_source, gpus_of
    from driftwatch.settings import PrometheusSource

    source = checked_source(PrometheusSource, options)
    at = SystemClock().now()
    asker = asker_of(source)
    try:
        discovered = discover(asker, source.match, at)
        if not discovered.servers:
            raise _no_server(asker, source.match, at)
    except SourceError as error:
        way = what_to_check(source.prometheus) if isinstance(error, Unavailable) else None
        help_text = error.help_text or way
        raise NoVerdict(f"{asker.host}: {error.message}", help_text=help_text) from error
    finally:
        asker.close()
    gpus, problems = gpus_of(source, at)
    discovered = replace(discovered, gpus=gpus, problems=(*discovered.problems, *problems))
    return written(discovered, found_pools(discovered, at), source)


def _no_server(asker: PrometheusAsker, match: Mapping[str, str], at: datetime) -> NoVerdict:
    """The error that names what the API has instead of a vLLM server."""
    from driftwatch.collect.foreign import STATS_DISABLED
    from driftwatch.collect.prometheus.targets import vllm_servers, why_no_vllm

    up = asker.instant("up", at)
    others = vllm_servers(asker, at) if match else 0
    foreign = why_no_vllm(asker, {labels["instance"] for labels, is_up in up if is_up})
    reasons = [f"; {server}: {why}" for server, why in foreign if why != STATS_DISABLED]
    named = f" with {', '.join(f'{k}={v}' for k, v in match.items())}" if match else ""
    found = f"{len(up)} targets are scraped, no series of vLLM among them"
    found = f"none with these labels; {others} without them" if others else found
    return NoVerdict(
        f"{asker.host} has no vLLM server{named}: {found}{''.join(reasons[:3])}",
        help_text="is vLLM scraped there? Started with --disable-log-stats it shows no series; a "
        "tenant may be needed (--tenant), or another --match",
    )


def _of_pages(urls: Sequence[str]) -> Written:
    """The configuration for pages, each fetched once.

    Raises UsageError: an address that is none; NoVerdict: none of them is a page of vLLM.
    """
    from driftwatch.clock import SystemClock
    from driftwatch.collect.foreign import fix_of
    from driftwatch.onboarding.discovery import found_pools
    from driftwatch.onboarding.text import written
    from driftwatch.service.probes import found_at_pages

    discovered, addresses = found_at_pages(urls)
    if not discovered.servers:
        reasons = "; ".join(f"{one.instance}: {one.reason}" for one in discovered.silent[:3])
        fix = fix_of(discovered.silent[0].reason) if discovered.silent else None
        raise NoVerdict(f"no page of vLLM: {reasons}", help_text=fix or _NO_PAGE)
    return written(discovered, found_pools(discovered, SystemClock().now()), addresses)
