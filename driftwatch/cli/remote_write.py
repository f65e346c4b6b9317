"""``driftwatch remote-write``: how a Prometheus is told to write to driftwatch."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from driftwatch.errors import UsageError

_EXAMPLE = "driftwatch remote-write http://driftwatch:9464/api/v1/write"


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--by",
    metavar="LABEL",
    multiple=True,
    default=("namespace", "job"),
    show_default=True,
    help="Label of a target; targets with the same values go to the same URL. Repeatable.",
)
@click.option("--token-file", metavar="FILE", help="Where the sender finds the bearer token.")
def command(urls: tuple[str, ...], by: tuple[str, ...], token_file: str | None) -> None:
    """Print `remote_write` for the configuration of a Prometheus that writes to driftwatch.

    URL is where a source of kind remote_write listens, such as
    http://driftwatch:9464/api/v1/write. With several URLs each gets a share of the fleet (hashmod).
    """
    import yaml

    from driftwatch.collect.remote_write.sender import remote_write_section
    from driftwatch.settings.values import http_url

    for url in urls:
        try:
            http_url(url)
        except ValueError as error:
            raise UsageError(f"{url}: {error}", help_text=_EXAMPLE) from None
        if urlsplit(url).path != "/api/v1/write":
            raise UsageError(
                f"{url}: driftwatch takes samples at /api/v1/write", help_text=_EXAMPLE
            )
    section = {"remote_write": remote_write_section(urls, by, token_file)}
    click.echo(yaml.safe_dump(section, sort_keys=False, width=100), nl=False)
