"""Mail over SMTP: one conversation an incident, plain text and HTML, the whole report attached.

``smtplib`` bounds each read. ``email.message`` makes the headers: no label can end a line.
"""

from __future__ import annotations

import errno
import smtplib
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import HeaderRegistry, MessageIDHeader
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from typing import Any

import structlog
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from driftwatch.address_guard import REFUSED, connect_permitted
from driftwatch.clock import SystemClock
from driftwatch.collect.http_session import why_failed
from driftwatch.errors import DeliveryError
from driftwatch.numbers import clean, cut
from driftwatch.receivers.letter import Letter, letter_of
from driftwatch.receivers.sender import Configured, Conversation, Message
from driftwatch.report.html import as_html
from driftwatch.report.report import Report
from driftwatch.settings.receivers import EmailReceiver
from driftwatch.settings.values import redact

SECONDS = 10.0  # of the connection, and of each answer
_ANSWER_BYTES = 256 * 1024  # of all of them
_SUBJECT_LIMIT, _REASON_LIMIT = 150, 120
_NOT_SUPPORTED = "the relay offers no STARTTLS, or no way to log in"
# an id stays whole: folded it would be encoded, and no program would find the mail that it answers
_HEADERS = HeaderRegistry()
_MESSAGE_ID: Any = MessageIDHeader  # typeshed knows no header class that may be mapped
_HEADERS.map_to_type("in-reply-to", _MESSAGE_ID)
_HEADERS.map_to_type("references", _MESSAGE_ID)
# 7 bits: a relay need not take more, and one without 8BITMIME may spoil what has 8 (RFC 6152)
_POLICY = SMTP.clone(cte_type="7bit", header_factory=_HEADERS)
_STATE_WORDS = ("FIRING ", "TICKET ", "NOTICE ", "UPDATE ")


@dataclass(frozen=True, slots=True)
class EmailSender(Configured[EmailReceiver]):
    """Hands mail to a relay."""

    now: Callable[[], datetime] = SystemClock().now
    seconds: float = SECONDS  # of each answer

    def send(self, message: Message) -> Conversation:
        """Send one mail to all recipients; those that the relay refuses are logged.

        Raises DeliveryError: no recipient was taken, or the relay took no mail.
        """
        settings, password, failure = self.settings, self.settings.read("password"), None
        mail = mail_of(message, settings, self.now())
        with closing(_Smtp(settings, self.seconds)) as smtp:
            try:
                smtp.begin(password)
                outcome = smtp.send_message(mail, settings.sender, list(settings.to))
                with suppress(smtplib.SMTPException, OSError, ValueError):
                    smtp.quit()  # the mail is taken, whatever becomes of the farewell
            except (smtplib.SMTPException, OSError, ValueError) as error:
                failure = self._failure(error)
        if failure is not None:  # outside the handler: the relay may have repeated the login
            raise failure
        for recipient, (code, text) in sorted(outcome.items()):
            reason = f"{code} {self._plain(text)}"
            log = structlog.get_logger()
            log.warning("recipient refused", receiver=self.name, to=recipient, reason=reason)
        first = (message.conversation or {}).get("subject") or subject(message)
        refused = {"refused": ", ".join(sorted(outcome))} if outcome else {}
        return {"subject": first, **refused}

    def _failure(self, error: Exception) -> DeliveryError:
        """What an exception means: an answer of 4xx may pass, of 5xx not (RFC 5321, 4.2.1)."""
        code = 0
        reply: bytes | str = b""
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            code, reply = min(error.recipients.values(), key=lambda answer: answer[0])
        elif isinstance(error, smtplib.SMTPResponseException):
            code, reply = error.smtp_code, error.smtp_error
        if code > 0:
            text = f"{self.name} answered {code}: {self._plain(reply)}"
            return DeliveryError(text, permanent=code >= 500)
        text = why_failed(error, self.seconds, "no answer")
        if isinstance(error, smtplib.SMTPNotSupportedError):
            text = _NOT_SUPPORTED
        return DeliveryError(f"{self.name}: {text}", permanent=text in (REFUSED, _NOT_SUPPORTED))

    def _plain(self, text: Any) -> str:
        """The relay's answer, without the password in any form that AUTH writes."""
        raw = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        password = self.settings.read("password") or ""
        written = (password, f"\0{self.settings.user}\0{password}") if password else ()
        secrets = [password, *(b64encode(text.encode()).decode() for text in written)]
        return cut(clean(redact(" ".join(raw.split()), secrets)), _REASON_LIMIT)


class _Smtp(smtplib.SMTP):
    """A session whose address is checked, and whose answers are bounded."""

    def __init__(self, settings: EmailReceiver, seconds: float) -> None:
        # EHLO with an address, and not with a name that a resolver may take long to find
        super().__init__(local_hostname="[127.0.0.1]", timeout=seconds)
        self._settings, self._left = settings, _ANSWER_BYTES
        self._host = settings.host.strip("[]")  # that TLS checks the name of

    def begin(self, password: str | None) -> None:
        """Connect, encrypt and log in as the settings say; without STARTTLS nothing is sent."""
        code, answer = self.connect(self._host, self._settings.relay_port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, answer)
        if self._settings.tls == "starttls":
            self.starttls(context=_context())
        if self._settings.user is not None:
            self.login(self._settings.user, password or "")

    def getreply(self) -> tuple[int, bytes]:
        """An answer, whose lines count against the bytes of the session."""
        if self.file is None and self.sock is not None:
            replies: Any = self.sock.makefile("rb")
            read = replies.readline
            replies.readline = lambda size: self._counted(read(size))
            self.file = replies
        return super().getreply()

    def _counted(self, line: bytes) -> bytes:
        self._left -= len(line)
        if self._left < 0:
            raise OSError(errno.EMSGSIZE, "its answers are too long")
        return line

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        opened = connect_permitted(host, port, timeout)
        opened.settimeout(timeout)
        if self._settings.tls != "tls":
            return opened
        return _context().wrap_socket(opened, server_hostname=host)


def _context() -> ssl.SSLContext:
    """What the machine trusts (``SSL_CERT_FILE`` counts), and Mozilla's list."""
    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    return context


def subject(message: Message) -> str:
    """Of the first mail; those after it answer it, with the same one, so that they stay together.

    It names no state: a resolve that answers "FIRING" would be read as a page.
    """
    # a page that is sent again has its count before the dot
    text = letter_of(message).title.rpartition(" · ")[2]
    for word in _STATE_WORDS:
        text = text.removeprefix(word)
    return cut(text, _SUBJECT_LIMIT)


def mail_of(message: Message, settings: EmailReceiver, at: datetime) -> EmailMessage:
    """The mail of a message; ``at``: its date."""
    letter, sender = letter_of(message), settings.sender
    mail = EmailMessage(policy=_POLICY)
    mail["From"], mail["To"] = f"driftwatch <{sender}>", ", ".join(settings.to)
    mail["Date"] = format_datetime(at)
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday answers it
    domain = sender.rpartition("@")[2]
    first = f"<{_local(message.subject)}.{message.kind}@{domain}>"
    if message.kind == "report" or message.idempotency_key == f"{message.subject}-firing":
        mail["Message-ID"], mail["Subject"] = first, subject(message)
    else:
        mail["Message-ID"] = f"<{_local(message.idempotency_key)}.incident@{domain}>"
        mail["In-Reply-To"] = mail["References"] = first
        before = (message.conversation or {}).get("subject")
        mail["Subject"] = f"Re: {before or subject(message)}"
    mail.set_content(letter.text + "\n")
    mail.add_alternative(html_of(letter), subtype="html")
    if message.kind == "report":
        name = f"driftwatch-{_local(message.subject)}.html"
        report = as_html(Report.model_validate(message.report))
        mail.add_attachment(report, subtype="html", filename=name)
    return mail


def _local(text: str) -> str:
    """As the left side of a message id: nothing but letters, digits and -."""
    return "".join(ch if ch.isascii() and (ch.isalnum() or ch == "-") else "-" for ch in text)


# dark at night, and lines of a length that is read at once
_HEAD = (
    '<html><head><meta name="color-scheme" content="light dark"></head>\n'
    '<body style="font:16px/1.45 sans-serif;max-width:40em">'
)


def html_of(letter: Letter) -> str:
    """The letter as HTML; every text from outside is escaped, only http(s) becomes a link."""
    rows = [f"<p><b>{escape(letter.title)}</b></p>"]
    for label, text in letter.lines:
        rows.append(f"<p><b>{escape(label)}</b> {escape(text)}</p>".replace("<b></b> ", ""))
    rows += [f"<p><code>{escape(command)}</code></p>" for command in letter.commands]
    for word, address in letter.links:
        is_address = address.startswith(("http://", "https://"))
        link = f'<a href="{escape(address)}">{escape(word)}</a>'
        rows.append(f"<p>{link if is_address else escape(f'{word}: {address}')}</p>")
    rows += [f"<p><small>{escape(letter.signature)}</small></p>"] if letter.signature else []
    return f"{_HEAD}\n" + "\n".join(rows) + "\n</body></html>\n"
