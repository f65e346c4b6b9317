"""A configuration with a canary in every secret field; a server that repeats what it got."""

from __future__ import annotations

import itertools
import json
from base64 import b64decode, b64encode
from binascii import Error
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fakes.loopback import Answer, LoopbackServer, Request
from outbox import planned
from page_cases import CAP

from driftwatch.incidents.incident import Transition
from driftwatch.store import Store, TickRecord


class Echo(LoopbackServer):
    """Refuses everything, and repeats path, headers and body: in a text, and in a redirect."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = itertools.count()

    def judge(self, request: Request) -> Answer:
        """Another status each time."""
        login = request.headers.get("authorization", "").rpartition(" ")[2]
        with suppress(Error, ValueError):
            login += " " + b64decode(login, validate=True).decode(errors="replace")
        text = f"{login} {request.path} {json.dumps(request.headers)} {request.body.decode()}"
        status = (403, 302, 500, 200, 429)[next(self._turn) % 5]
        to = f"http://127.0.0.1:9{request.path}?{login.replace(' ', '+')}"
        headers = {"Location": to, "Content-Type": "application/json"} if status == 302 else {}
        if status == 403 and "/api/v1/" in request.path:
            text = json.dumps({"status": "error", "errorType": "x", "error": text})
        return Answer(status, text, headers)


class Canaries:
    """A canary a field, and what stands in the configuration for it."""

    def __init__(self, folder: Path, in_files: bool) -> None:
        self.by_field: dict[str, str] = {}
        self._folder, self._in_files = folder, in_files

    def of(self, field: str, form: str = "{}") -> dict[str, str]:
        """The field, inline or as file; ``form``: the secret, with the canary in its braces."""
        name = field.rpartition(".")[2]
        as_file = name.endswith("_file")
        path = field if as_file or not self._in_files else f"{field}_file"
        canary = self.by_field[path] = f"canary{len(self.by_field):02d}xyzzy"
        secret = form.format(canary)
        if path.endswith("_file"):
            file = self._folder / path
            file.write_text(secret + "\n")
            file.chmod(0o600)
            return {path.rpartition(".")[2]: str(file)}
        return {name: secret}

    def within(self, texts: dict[str, str]) -> list[tuple[str, str]]:
        """Where a canary stands: (text's name, field). Base64 of a login counts."""
        shapes = {
            field: (canary, b64encode(f"watch:{canary}".encode()).decode())
            for field, canary in self.by_field.items()
        }
        return [
            (name, field)
            for name, text in texts.items()
            for field, forms in shapes.items()
            if any(form in text for form in forms)
        ]


def configuration(one: Canaries, url: str, relay: int, rest: dict[str, Any]) -> dict[str, Any]:
    """Everything that takes a secret, all of it at the echo."""
    auth = {"username": "watch"}
    at = "receivers"
    ntfy = url.replace("http://", "ntfy://user:")
    mail = {"host": "127.0.0.1", "port": relay, "from": "a@b.example", "to": ["c@d.example"]}
    app = {"channel": "C024BE91L", "users": ["U024BE7LH"], "api_url": f"{url}/slack/api/"}
    receivers: dict[str, dict[str, Any]] = {
        "hook": {"webhook": one.of(f"{at}.webhook.url", url + "/hook/{}")
                 | one.of(f"{at}.webhook.secret_file")},
        "slack": {"slack": one.of(f"{at}.slack.webhook_url_file", url + "/slack/{}")},
        "app": {"slack": {**app, **one.of(f"{at}.slack.bot_token_file", "xoxb-{}"),
                          **one.of(f"{at}.slack.app_token_file", "xapp-{}")}},
        "pager": {"pagerduty": {"url": f"{url}/pager", **one.of(f"{at}.pagerduty.routing_key_file",
                                                                "{}" + "0" * 19)}},
        "am": {"alertmanager": {"urls": [f"{url}/am"], "interval": "5s", "basic_auth":
               {**auth, **one.of(f"{at}.alertmanager.basic_auth.password_file")}}},
        "am2": {"alertmanager": {"urls": [f"{url}/am2"],
                                 **one.of(f"{at}.alertmanager.bearer_token_file")}},
        "mail": {"email": {**mail, "user": "watch", **one.of(f"{at}.email.password_file")}},
        "phone": {"apprise": one.of(f"{at}.apprise.address_file", ntfy.replace("user:", "user:{}@")
                                    + "/topic")},
    }  # fmt: skip
    return {
        "sources": [
            {"prometheus": f"{url}/p1",
             "basic_auth": {**auth, **one.of("sources.basic_auth.password_file")}},
            {"prometheus": f"{url}/p2", **one.of("sources.bearer_token_file")},
            {"pages": [f"{url}/metrics"]},
        ],
        "heartbeat": one.of("heartbeat.url", url + "/beat/{}"),
        "web": one.of("web.token_file"),
        "interval": "1s",
        "receivers": [{"name": name, **kind} for name, kind in receivers.items()],
        **rest,
    }  # fmt: skip


def seed(store: Store, receivers: list[str]) -> str:
    """An incident whose page every receiver is to get; returns its id."""
    now = datetime.now(UTC).replace(microsecond=0)
    page, fired = CAP.page(), CAP.incident
    deliveries = [planned(fired.id, page, now, name) for name in receivers]
    store.commit_tick(
        TickRecord(
            now - timedelta(minutes=1),
            now,
            incidents=[fired],
            transitions=[Transition(fired, "firing", now)],
            deliveries=deliveries,
        )
    )
    return fired.id
