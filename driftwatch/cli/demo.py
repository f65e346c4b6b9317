"""``driftwatch demo``: play a recorded server and show the page on-call gets."""

from __future__ import annotations

import sys
from importlib.resources import as_file, files

import click

_STORY = """\
A real vLLM 0.32 server, recorded: 29 minutes in a few seconds. Nothing is configured; driftwatch
sees only its /metrics page. Light traffic, then more than it was tuned for; then somebody
restarts it with another setting and sends the same requests again.
"""
_END = """\
That is all the pages there were: the restart paged nobody, and the same
requests, sent again to the restarted server, wait no more.
next:    driftwatch watch http://HOST:8000/metrics      on your own server
         driftwatch evidence queue                      what the words mean
"""


@click.command(name="demo")
@click.option("--fast", is_flag=True, help="Do not pause between the minutes.")
def command(fast: bool) -> None:
    """Play a recorded server, minute by minute, and show the page on-call gets."""
    import textwrap
    import time
    from datetime import timedelta

    from driftwatch.cli.options import plan_from
    from driftwatch.collect.recording import RecordingSource
    from driftwatch.notify.layout import spell
    from driftwatch.notify.minute_line import minute_line
    from driftwatch.notify.stdout import StdoutSender, needs_ascii
    from driftwatch.service.replay import replay

    ascii = needs_ascii(sys.stdout)
    pause = 0.0 if fast or not sys.stdout.isatty() else 0.15
    sender = StdoutSender(mark=True, stored=False)
    click.echo(textwrap.fill(_STORY, 80) + "\n")
    recording = files("driftwatch") / "_demo" / "run_cap.jsonl.gz"
    with as_file(recording) as path:
        source = RecordingSource(path)
        span = source.span()
        for outcome in replay([source], span, plan_from(None), stride=timedelta(minutes=1)):
            for row in outcome.rows.iter_rows(named=True):
                click.echo(spell(minute_line(row), ascii))
            for transition in outcome.transitions:
                if transition.incident.page is not None:
                    click.echo("-" * 80)
                    sender.send(transition.incident.page)
                    click.echo("-" * 80)
            time.sleep(pause)
    click.echo("\n" + _END, nl=False)
