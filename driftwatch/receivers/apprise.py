"""The long tail (Teams, Telegram, ntfy, ...) through Apprise: best effort.

Apprise bounds each read and no answer, so it runs in a process of its own, which ends at a deadline
and has so much memory. The address goes in by standard input: no list of processes shows it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import orjson

from driftwatch.address_guard import REFUSED, refused
from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.receivers.letter import Letter, letter_of
from driftwatch.receivers.sender import Message, refusal
from driftwatch.settings.receivers import AppriseReceiver

SECONDS = 45.0
MEMORY_BYTES = 512 * 1024 * 1024
# the services' own limits begin at 2,000 characters (Discord)
BODY_LIMIT = 1800

_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "HOME")
# signs of Markdown, of HTML, of mentions and of links, by look-alikes
_LOOK_ALIKE = str.maketrans(dict(zip("*`~[]<>@#|\\", "∗ˋ∼［］‹›＠＃｜⧵", strict=True)))
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_STATUS = re.compile(r"error=(\d{3})\b")
_PROGRAMS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn"))
_SOCKET_EVENTS = frozenset(("socket.connect", "socket.sendto", "socket.sendmsg"))
_INSTALL = "pip install 'vllm-driftwatch[apprise]'"


@dataclass(frozen=True, slots=True)
class AppriseSender:
    """Sends title and text to one service."""

    name: str  # receiver name
    address: str = field(repr=False)  # Apprise's URL, a secret
    seconds: float = SECONDS  # of everything together

    def send(self, message: Message) -> None:
        """Send once.

        Raises DeliveryError: the service did not take it.
        """
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        answer, failure = None, "apprise ended without an answer"
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "driftwatch.receivers.apprise"],
                input=orjson.dumps({**job_of(message), "address": self.address}),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.seconds,
                env={**environment, "NETRC": os.devnull},
                check=False,
            )
            answer = orjson.loads(ended.stdout)
        except subprocess.TimeoutExpired:
            failure = f"timed out after {self.seconds:g} s"
        except (OSError, orjson.JSONDecodeError):
            pass
        if answer is None:
            raise DeliveryError(f"{self.name}: {failure}", permanent=False)
        if not answer["taken"]:
            status = answer["status"]
            refused_with = None if status is None else refusal(self.name, status, {}, "", ())
            # a status of 2xx that the service does not give is no success either
            text = f"{self.name}: {answer['reason']}"
            raise refused_with or DeliveryError(text, permanent=answer["permanent"])


def job_of(message: Message) -> dict[str, str]:
    """What Apprise is to send: no text of it formats, mentions or links."""
    letter = letter_of(message)
    kind = {"resolved": "success", "firing": "failure"}.get(message.event, "info")
    return {"title": harmless(letter.title), "body": body_of(letter), "type": kind}


def body_of(letter: Letter) -> str:
    """The text under the title; whole lines, as many as have room."""
    rows = [harmless(f"{label}: {text}" if label else text) for label, text in letter.lines]
    rows += [harmless(command) for command in letter.commands]
    rows += [f"{word}: {address}" for word, address in letter.links]
    body = ""
    for row in rows or ["-"]:
        if len(body) + len(row) + 2 > BODY_LIMIT:
            return f"{body}…"
        body += f"{row}\n"
    return body.rstrip("\n")


def harmless(text: str) -> str:
    """Without a sign that a service would act on, whatever it takes: text, Markdown, HTML.

    >>> harmless("<b>*a*</b> @everyone max_num_seqs __x__ http://evil")
    '‹b›∗a∗‹/b› ＠everyone max_num_seqs ˍˍxˍˍ http：//evil'
    """
    plain = text.translate(_LOOK_ALIKE).replace("://", "：//")
    return _OUTER_UNDERSCORE.sub("ˍ", plain)


def sender_of(name: str, settings: AppriseReceiver) -> AppriseSender:
    """The sender of a receiver.

    Raises ConfigError: Apprise is not installed, or the address cannot be read.
    """
    if importlib.util.find_spec("apprise") is None:
        text = "it needs Apprise, which is not installed"
        raise ConfigError(
            (Problem(f"receiver {name}", None, None, "not-installed", text, _INSTALL),)
        )
    return AppriseSender(name, settings.read("address") or "")


class _Statuses(logging.Handler):
    """The HTTP status that Apprise's log names; its text holds parts of the address."""

    def __init__(self) -> None:
        super().__init__()
        self.last: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if (named := _STATUS.search(record.getMessage())) is not None:
            self.last = int(named[1])


def _confine() -> None:
    """No program is started, and no socket goes where it may not, whatever a service's code does.

    An audit hook cannot be taken off again. What a library in C does by itself it does not see.
    """

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _PROGRAMS:
            raise PermissionError(f"{event} is not permitted")
        # None: to where it is connected already
        if event in _SOCKET_EVENTS and (to := arguments[1]) is not None:
            # a name would be looked up after this check, and a path is a service of this machine
            host = str(to[0]) if isinstance(to, tuple) else ""
            try:
                permitted = not refused(host)
            except ValueError:
                permitted = False
            if not permitted:
                raise PermissionError(REFUSED)

    sys.addaudithook(audit)


def main() -> None:
    """Send the job on standard input; what came of it is JSON on standard output."""
    job = orjson.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    from apprise import Apprise, AppriseAsset

    _confine()

    log, statuses = logging.getLogger("apprise"), _Statuses()
    log.addHandler(statuses)
    log.propagate = False
    asset = AppriseAsset(http_redirects=False, secure_logging=True)
    service = Apprise(asset=asset)
    answer: dict[str, Any] = {"taken": False, "permanent": True, "status": None}
    if service.add(job["address"]):
        success = service.notify(
            body=job["body"], title=job["title"], notify_type=job["type"], body_format="text"
        )
        reason = "apprise could not send it"
        answer |= {"taken": bool(success), "permanent": False, "status": statuses.last}
    else:
        reason = "apprise does not know its address"
    sys.stdout.buffer.write(orjson.dumps({**answer, "reason": reason}))


if __name__ == "__main__":
    main()
