"""``driftwatch notify test``: does a receiver take pages?"""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError, UsageError


@click.group("notify")
def command() -> None:
    """Send a marked test page to a receiver."""


@command.command("test")
@click.argument("receiver")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("driftwatch.yaml"),
    show_default=True,
    metavar="FILE",
    help="Configuration that names the receiver.",
)
def test(receiver: str, config: Path) -> int:
    """Send a page that is marked as a test to RECEIVER, once.

    Exit: 0 it was taken, 1 it was refused (the reason is printed), 2 there is no such receiver.
    """
    # an import of a verb must stay cheap: these bring requests and slack_sdk
    from driftwatch.notify.senders import build_senders, sample_page
    from driftwatch.settings import load_settings

    receivers = {one.name: one for one in load_settings(config).receivers}
    if receiver not in receivers:
        raise _unknown(receiver, list(receivers), config)
    sender = build_senders([receivers[receiver]])[receiver]
    try:
        sender.send(sample_page(receiver, SystemClock().now()))
    except DeliveryError as error:
        again = "trying again will not help" if error.permanent else "trying again may help"
        if error.retry_after_seconds is not None:
            again += f", after {error.retry_after_seconds:g} s"
        click.echo(f"REFUSED {error.message} ({again})", err=True)
        return EXIT_PROBLEM
    click.echo(
        f"delivered: {receiver} took the test page", err=receivers[receiver].stdout is not None
    )
    return EXIT_ANSWERED


def _unknown(receiver: str, receivers: list[str], config: Path) -> UsageError:
    close = difflib.get_close_matches(receiver, receivers, n=1)
    if close:
        text = f"did you mean {close[0]}?"
    elif receivers:
        text = f"receivers of {config}: {', '.join(receivers)}"
    else:
        text = f"{config} has no receivers"
    return UsageError(f"no receiver {receiver!r}", help_text=text)
