"""A page that is marked as a test, for ``driftwatch doctor --send-test``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError, UsageError
from driftwatch.receivers.registry import build_senders, sample_pages
from driftwatch.receivers.sender import message_of
from driftwatch.settings import load_settings
from driftwatch.yaml_models import near_or_all


def send_test_page(receiver: str, config: Path, *, resolve: bool) -> int:
    """Send a page that is marked as a test to a receiver, once; the exit code.

    ``resolve``: send the resolve of that page as well. Raises UsageError: no such receiver.
    """
    receivers = {one.name: one for one in load_settings(config).receivers}
    if receiver not in receivers:
        names = near_or_all(receiver, receivers, f"receivers of {config}")
        raise UsageError(f"no receiver {receiver!r}", help_text=names or f"{config} has none")
    settings = receivers[receiver]
    sender = build_senders([settings])[receiver]
    pages = sample_pages(receiver, SystemClock().now())
    conversation = None
    try:
        for page in pages if resolve else pages[:1]:
            message = replace(message_of(page), conversation=conversation)
            conversation = sender.send(message) or conversation
    except DeliveryError as error:
        again = "trying again will not help" if error.permanent else "trying again may help"
        if error.retry_after_seconds is not None:
            again += f", after {error.retry_after_seconds:g} s"
        click.echo(f"REFUSED {error.message} ({again})", err=True)
        return EXIT_PROBLEM
    what = "the test page and its resolve" if resolve else "the test page"
    text = f"delivered: {receiver} took {what}"
    if settings.pagerduty is not None and not resolve:
        text += "; PagerDuty keeps it open: --resolve ends it"
    click.echo(text, err=settings.stdout is not None)
    if refused := (conversation or {}).get("refused"):
        click.echo(f"REFUSED for {refused}", err=True)
        return EXIT_PROBLEM
    return EXIT_ANSWERED
