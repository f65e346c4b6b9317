"""Every kind of receiver with every event: sent or not, as the one table and the docs say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from page_cases import AT, CAP
from receiver_cases import (
    acknowledged,
    ending,
    message,
    planned,
    repeat,
    report,
    unacknowledged,
)

from driftwatch.cli.main import cli
from driftwatch.incidents.delivery import MessageEvent
from driftwatch.model import TargetKey
from driftwatch.notify.change import ServerChange, change_documents
from driftwatch.notify.follow_up import follow_up
from driftwatch.receivers.registry import build_senders, sample_pages
from driftwatch.receivers.sender import Message, message_of
from driftwatch.settings import ReceiverSettings
from driftwatch.settings.receivers.event_table import EVENTS, TABLE, as_markdown, handling, row_of
from driftwatch.settings.receivers.receiver import KINDS
from driftwatch.testing.alertmanager import NotificationServer
from driftwatch.testing.loopback import LoopbackServer
from driftwatch.testing.ntfy_server import NtfyServer
from driftwatch.testing.pagerduty_server import ROUTING_KEY, PagerdutyServer
from driftwatch.testing.slack_server import SlackServer
from driftwatch.testing.slack_workspace import BOT_TOKEN, SlackWorkspace
from driftwatch.testing.smtp_server import SmtpServer
from driftwatch.verify.verification import VERIFICATION, Change, Verification

DOCS = Path(__file__).parents[2] / "docs" / "sre" / "receivers.md"
PAGE = CAP.page()
VERDICT = Verification(
    *("v", "host:8000", "0", "rag-8b", Change("knobs", AT, {"max_num_seqs": ("8", "64")}), AT, AT),
    verdict="PASS",
)
VERIFIED = follow_up(PAGE | {"verification": VERIFICATION.document(VERDICT)}, "verified", AT)
BUDGET_CHANGE = Change("knobs", AT, {"max_num_batched_tokens": ("512", "2048")})
(CHANGE,) = change_documents(
    [ServerChange(TargetKey("rag-0:8000", "0"), "rag-8b", BUDGET_CHANGE, "3f9c1a7be204")]
).values()
MESSAGES: dict[str, Message] = {
    "firing": message(PAGE),
    "repeat": repeat(PAGE),
    "advised": planned("advised", PAGE | {"event": "advised"}, "advised"),
    "acknowledged": acknowledged(PAGE),
    "unacknowledged": unacknowledged(PAGE),
    "resolved": message(CAP.resolved()),
    "verified": planned("verified", VERIFIED, "verified"),
    "report": Message("report", "2026-W47", "report", 0, "scheduled", report()),
    "ending": ending(),
    "change": Message("change", "b0b0", "change", 0, "first", CHANGE),
    "test": message_of(sample_pages("one", AT)[0]),
}


HOOKED = ("alertmanager", "webhook", "webhook, format alertmanager")


class Receivers:
    """A receiver of every form, each on its fake."""

    def __init__(self, stack: ExitStack) -> None:
        pagerduty, slack = (
            stack.enter_context(PagerdutyServer()),
            stack.enter_context(SlackServer()),
        )
        hooks = [stack.enter_context(NotificationServer()) for _ in range(3)]
        workspace = stack.enter_context(SlackWorkspace({"C0000ONCALL": ()}))
        token = Path(stack.enter_context(TemporaryDirectory())) / "bot.token"
        token.write_text(BOT_TOKEN)
        app = {"bot_token_file": token, "channel": "C0000ONCALL", "api_url": workspace.api_url}
        ntfy, relay = stack.enter_context(NtfyServer()), stack.enter_context(SmtpServer())
        mail = {"host": "127.0.0.1", "port": relay.port, "tls": "none"}
        mail |= {"from": "driftwatch@example.org", "to": ["ana@example.org"]}
        self.settings: dict[str, dict[str, Any]] = {
            "pagerduty": {"pagerduty": {"routing_key": ROUTING_KEY, "url": pagerduty.address}},
            "slack": {"slack": {"webhook_url": slack.url}},
            "slack, app": {"slack": {name: str(value) for name, value in app.items()}},
            "alertmanager": {"alertmanager": {"urls": [hooks[0].address]}},
            "webhook": {"webhook": {"url": hooks[1].address}},
            "webhook, format alertmanager": {
                "webhook": {"url": hooks[2].address, "format": "alertmanager"}
            },
            "apprise": {"apprise": {"address": ntfy.apprise_address}},
            "email": {"email": mail},
            "stdout": {"stdout": {}},
        }
        self._servers: dict[str, LoopbackServer] = {
            **{"pagerduty": pagerduty, "slack": slack, "apprise": ntfy},
            **dict(
                zip(("alertmanager", "webhook", "webhook, format alertmanager"), hooks, strict=True)
            ),
        }
        self._relay, self._workspace = relay, workspace

    def count(self, form: str) -> int:
        """How many messages came."""
        if form == "email":
            return len(self._relay.mails)
        if form == "slack, app":
            calls = self._workspace.calls
            return calls.count("chat.postMessage") + calls.count("chat.update")
        return len(self._servers[form].requests)


@pytest.fixture(scope="module")
def receivers() -> Iterator[Receivers]:
    with ExitStack() as stack:
        yield Receivers(stack)


@pytest.mark.parametrize("row", EVENTS)
@pytest.mark.parametrize("form", TABLE)
def test_an_event_is_sent_as_the_table_says(
    form: str, row: str, receivers: Receivers, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ReceiverSettings.model_validate({"name": "one", **receivers.settings[form]})
    assert settings.form == form
    one = MESSAGES[row]
    assert row_of(one.event, one.number, one.reason, one.payload) == row
    before = 0 if form == "stdout" else receivers.count(form)
    build_senders([settings])["one"].send(one)
    if form == "stdout":
        came = len(capsys.readouterr().out.splitlines())
    else:
        came = receivers.count(form) - before
    assert came == (0 if handling(form, row) == "ignores" else 1)


def test_the_table_has_every_event_and_every_kind() -> None:
    assert set(get_args(MessageEvent)) <= EVENTS.keys()
    assert all(set(row) == set(EVENTS) for row in TABLE.values())
    assert {form.partition(",")[0] for form in TABLE} == set(KINDS)
    assert MESSAGES.keys() == EVENTS.keys()


def test_the_docs_print_the_table() -> None:
    table = as_markdown()
    assert table in DOCS.read_text(encoding="utf-8"), table


@pytest.mark.parametrize("form", TABLE)
def test_notify_test_with_its_resolve(form: str, receivers: Receivers, tmp_path: Path) -> None:
    file = tmp_path / "driftwatch.yaml"
    document = {"receivers": [{"name": "one", **receivers.settings[form]}]}
    file.write_text(json.dumps(document), encoding="utf-8")
    before = 0 if form == "stdout" else receivers.count(form)
    words = ["notify", "test", "one", "--resolve", "-c", str(file)]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert done.return_value == 0, done.output
    said = done.stderr if form == "stdout" else done.stdout
    assert said == "delivered: one took the test page and its resolve\n"
    assert form == "stdout" or receivers.count(form) == before + 2


def test_pagerduty_keeps_a_test_open(
    receivers: Receivers, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    file = tmp_path / "driftwatch.yaml"
    document = {"receivers": [{"name": "one", **receivers.settings["pagerduty"]}]}
    file.write_text(json.dumps(document), encoding="utf-8")
    done = CliRunner().invoke(
        cli, ["notify", "test", "one", "-c", str(file)], standalone_mode=False
    )
    golden("receivers/notify-test-pagerduty.txt", done.output)
