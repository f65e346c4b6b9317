"""A mail relay on the loopback that speaks real SMTP (aiosmtpd): STARTTLS, TLS, AUTH, refusals."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

# a development dependency: only who starts this server needs it
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "driftwatch", "canary-relay-password"


class SmtpServer:
    """Takes mail at :attr:`port` of 127.0.0.1 while it is entered.

    ``tls``: starttls, tls or none; ``certificate``: PEM files of certificate and key, needed for
    the first two; ``auth``: whether mail without a user is refused
    (starttls; else one may log in).

    Attributes:
        mails: what it took, in order.
        envelopes: sender and recipients of each.
        answers: what the next messages are answered, first in first out.
        refused: recipient → the answer to ``RCPT TO``.
    """

    def __init__(
        self, tls: str = "none", certificate: tuple[Path, Path] | None = None, auth: bool = False
    ) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[tuple[str, tuple[str, ...]]] = []
        self.answers: deque[str] = deque()
        self.refused: dict[str, str] = {}
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
        wants: dict[str, Any] = {"auth_required": auth, "authenticator": _authenticated}
        if tls == "starttls":
            wants |= {"tls_context": context, "require_starttls": True}
        else:  # aiosmtpd does not know that a session was encrypted from its first byte
            wants = {"authenticator": _authenticated, "auth_require_tls": False}
        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=_free_port(),
            ssl_context=context if tls == "tls" else None,
            **wants,
        )

    @property
    def port(self) -> int:
        return self._controller.port

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.popleft()
        mail = message_from_bytes(bytes(envelope.original_content or b""), policy=policy.default)
        self.mails.append(mail)
        self.envelopes.append((envelope.mail_from or "", tuple(envelope.rcpt_tos)))
        return "250 OK"

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._controller.stop()


def _authenticated(
    _server: SMTP, _session: Session, _envelope: Envelope, mechanism: str, data: Any
) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (
        USER.encode(),
        PASSWORD.encode(),
    )
    return AuthResult(success=right, handled=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
