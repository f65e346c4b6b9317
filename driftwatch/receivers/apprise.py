"""The long tail (Teams, Telegram, ntfy, ...) through Apprise: best effort.

Apprise bounds each read and no answer, so it runs in a process of its own, which ends at a deadline
and has so much memory. The address goes in by standard input: no list of processes shows it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import orjson

from driftwatch.address_guard import REFUSED, refused
from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.receivers.letter import harmless, letter_of
from driftwatch.receivers.sender import Configured, Message
from driftwatch.settings.receivers import AppriseReceiver

SECONDS, MEMORY_BYTES = 45.0, 512 * 1024 * 1024
BODY_LIMIT = 1800  # the services' own limits begin at 2,000 characters (Discord)
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "HOME")
_NO_ADDRESS = "apprise does not know its address"
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn"))
_SOCKETS = frozenset(("socket.connect", "socket.sendto", "socket.sendmsg"))


@dataclass(frozen=True, slots=True)
class AppriseSender(Configured[AppriseReceiver]):
    """Sends title and text to one service."""

    seconds: float = SECONDS  # of everything together

    def check(self) -> None:
        """Raises ConfigError: Apprise is not installed, or the address cannot be read."""
        if importlib.util.find_spec("apprise") is None:
            text, install = "it needs Apprise, which is not installed", "vllm-driftwatch[apprise]"
            place = f"receiver {self.name}", None, None
            raise ConfigError((Problem(*place, "not-installed", text, f"pip install '{install}'"),))
        self.settings.read("address")

    def send(self, message: Message) -> None:
        """Send once.

        Raises DeliveryError: the service did not take it.
        """
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        job = {**job_of(message), "address": self.settings.read("address")}
        answer, reason = None, "apprise ended without an answer"
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "driftwatch.receivers.apprise"],
                input=orjson.dumps(job),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.seconds,
                env={**environment, "NETRC": os.devnull},
                check=False,
            )
            answer = orjson.loads(ended.stdout)
        except subprocess.TimeoutExpired:
            reason = f"timed out after {self.seconds:g} s"
        except (OSError, orjson.JSONDecodeError):
            pass
        if (reason := reason if answer is None else answer["reason"]) is not None:
            raise DeliveryError(f"{self.name}: {reason}", permanent=reason == _NO_ADDRESS)


def job_of(message: Message) -> dict[str, str]:
    """What Apprise is to send: no text of it formats, mentions or links; whole lines, as many as
    have room.
    """
    letter = letter_of(message)
    rows = [harmless(f"{label}: {text}" if label else text) for label, text in letter.lines]
    rows += [harmless(command) for command in letter.commands]
    rows += [f"{word}: {address}" for word, address in letter.links]
    rows += [harmless(letter.signature)] if letter.signature else []
    body = ""
    for row in rows or ["-"]:
        if len(body) + len(row) + 2 > BODY_LIMIT:
            body += "…"
            break
        body += f"{row}\n"
    kind = {"resolved": "success", "firing": "failure"}.get(message.event, "info")
    return {"title": harmless(letter.title), "body": body.rstrip("\n"), "type": kind}


def _confine(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: no program is started, and no socket goes where it may not.

    A name would be looked up after this check, and a path is a service of this machine: only a
    numeric address passes.
    """
    if event in _PROGRAMS:
        raise PermissionError(f"{event} is not permitted")
    # None: to where it is connected already
    if event in _SOCKETS and (to := arguments[1]) is not None:
        try:
            is_refused = refused(str(to[0]) if isinstance(to, tuple) else "")
        except ValueError:
            is_refused = True
        if is_refused:
            raise PermissionError(REFUSED)


def main() -> None:
    """Send the job on standard input; what came of it is JSON on standard output."""
    job = orjson.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    from apprise import Apprise, AppriseAsset

    sys.addaudithook(_confine)
    logging.getLogger("apprise").propagate = False  # its lines hold parts of the address
    service = Apprise(asset=AppriseAsset(http_redirects=False, secure_logging=True))
    reason, kind = None, job.pop("type")
    if not service.add(job.pop("address")):
        reason = _NO_ADDRESS
    elif not service.notify(**job, notify_type=kind, body_format="text"):
        reason = "apprise could not send it"
    sys.stdout.buffer.write(orjson.dumps({"reason": reason}))


if __name__ == "__main__":
    main()
