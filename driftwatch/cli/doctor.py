"""``driftwatch doctor``: what can fire, what is missing, and the line that fixes it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.options import Span, plan_from, print_problems, serving_options
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from driftwatch.collect.schema import Source, SourceProblem
    from driftwatch.model import Target, TargetKey
    from driftwatch.service.checkup import Check, Checkup
    from driftwatch.service.explain import Window


@click.command(name="doctor")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--recording", type=click.Path(path_type=Path), help="Look at a recording.")
@click.option("--baseline", type=Span(), help="A baseline that will be given.")
@click.option("--all", "show_all", is_flag=True, help="Show what is fine as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@serving_options
def command(
    urls: tuple[str, ...],
    recording: Path | None,
    baseline: Window | None,
    show_all: bool,
    as_json: bool,
    config: Path | None,
    **serving: Any,
) -> None:
    """Prove every input of every rule, at metrics pages (URL), a recording, or --config.

    Without any of these, ./driftwatch.yaml is taken where there is one. Exit code 0: every rule
    can fire on every target and every receiver can be told; 1: not, with the reason.
    """
    from dataclasses import replace

    from driftwatch.cli.database import config_here
    from driftwatch.clock import SystemClock
    from driftwatch.collect.schema import empty_scrapes
    from driftwatch.service.checkup import checkup

    if config is None and not urls and recording is None:
        config = config_here()
    plan = plan_from(config, **serving)
    sources = _sources(urls, recording, config)
    now = SystemClock().now()
    frames = [empty_scrapes()]
    targets: dict[TargetKey, Target] = {}
    problems: list[SourceProblem] = []
    for source in sources:
        since, until = (
            source.span() if hasattr(source, "span") else (now - timedelta(minutes=5), now)
        )
        collected = source.collect(since, until)
        frames.append(collected.scrapes)
        targets |= collected.targets
        problems += collected.problems
        source.close()
    import polars as pl

    print_problems(problems)
    found = checkup(pl.concat(frames), plan.assign(targets), plan, baseline is not None)
    if config is not None:
        found = replace(found, checks=(*found.checks, *_receivers(config)))
    _print(found, show_all, as_json, _pool_lines(config), flags=config is None)
    click.get_current_context().exit(0 if found.ready else 1)


def _sources(urls: Sequence[str], recording: Path | None, config: Path | None) -> list[Source]:
    given = [bool(urls), recording is not None, config is not None and not urls and not recording]
    if sum(given) != 1:
        raise UsageError(
            "give URLs, --recording, or --config; there is no ./driftwatch.yaml"
            if not any(given)
            else "give URLs or --recording, not both",
            help_text="driftwatch doctor http://host:8000/metrics",
        )
    if recording is not None:
        from driftwatch.collect.recording import RecordingSource

        return [RecordingSource(recording)]
    if urls:
        from driftwatch.collect.pages import PagesSource

        return [PagesSource(list(urls))]
    from driftwatch.clock import SystemClock
    from driftwatch.service.configured import sources_of
    from driftwatch.settings import load_settings

    assert config is not None  # noqa: S101 - one of the three is given
    return sources_of(load_settings(config), SystemClock())


def _receivers(config: Path) -> list[Check]:
    from driftwatch.service.checkup import receivers_told
    from driftwatch.service.needs import receiver_files
    from driftwatch.settings import load_settings

    return receivers_told(receiver_files(load_settings(config)))


def _pool_lines(config: Path | None) -> dict[str, str]:
    """Pool name → ``file:line`` where it is configured."""
    if config is None:
        return {}
    from driftwatch.yaml_positions import Entries, Items, Scalar, read_yaml

    root = read_yaml(config).root
    pools = root.entries.get("pools") if isinstance(root, Entries) else None
    found = {}
    for pool in pools[1].items if pools and isinstance(pools[1], Items) else ():
        name = pool.entries.get("name") if isinstance(pool, Entries) else None
        if name and isinstance(name[1], Scalar):
            found[str(name[1].value)] = f"{config}:{name[0].line}"
    return found


def _print(
    found: Checkup, show_all: bool, as_json: bool, lines: Mapping[str, str], *, flags: bool
) -> None:
    """Trouble first, verdict last."""
    if as_json:
        import json

        document = {
            "schema_version": 1,
            "ready": found.ready,
            "rules": dict(found.rules),
            "checks": [asdict(check) for check in found.checks],
        }
        click.echo(json.dumps(document, indent=2))
        return
    order = {"MISSING": 0, "WARNING": 1, "off": 2, "ok": 3}
    checks = sorted(found.checks, key=lambda check: order[check.status])
    wide = max((len(c.where) for c in checks), default=0)
    fine = [c for c in checks if c.status == "ok"]
    for check in checks:
        if check.status in ("MISSING", "WARNING") or show_all:
            _print_check(check, wide, lines, flags=flags)
    if not show_all:
        click.echo(f"ok      {len(fine)} checks (--all)")
    able = sum(found.rules.values())
    word = "READY" if found.ready else "NOT READY"
    click.echo(f"{word}: {able} of {len(found.rules)} rules can fire on every pool")


def _print_check(check: Check, wide: int, lines: Mapping[str, str], *, flags: bool) -> None:
    """What was found, what it costs, how to mend it (with ``flags``, on the command line first)."""
    import textwrap

    click.echo(
        textwrap.fill(
            f"{check.status:<8}{check.where:<{wide}}  {check.what}", 80, subsequent_indent=" " * 8
        )
    )
    if check.disables:
        click.echo(
            textwrap.fill(
                f"        disables  {', '.join(check.disables)}", 80, subsequent_indent=" " * 18
            )
        )
    if check.fix:
        place = lines.get(check.pool, "pools[]:") if check.pool is not None else ""
        given = f"{check.flags}; or in the configuration, " if flags and check.flags else ""
        click.echo(
            textwrap.fill(
                f"        fix       {given}{f'{place} ' if place else ''}{check.fix}",
                80,
                subsequent_indent=" " * 18,
                break_on_hyphens=False,
            )
        )
