"""Mail over SMTP: one conversation an incident, plain text and HTML, the whole report attached.

``smtplib`` bounds each read; here the exchange has one deadline and one number of bytes.
``email.message`` makes the headers: no label can end a line.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.headerregistry import HeaderRegistry, MessageIDHeader
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from pathlib import Path
from typing import Any

import structlog
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from driftwatch.address_guard import REFUSED, AddressRefused, permitted_addresses
from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.numbers import clean, cut
from driftwatch.receivers.letter import Letter, letter_of
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.report.html import as_html
from driftwatch.report.report import Report
from driftwatch.settings.receivers import EmailReceiver
from driftwatch.settings.values import redact

SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_ANSWER_BYTES = 256 * 1024
_SUBJECT_LIMIT, _REASON_LIMIT = 150, 120
# an id stays whole: folded it would be encoded, and no program would find the mail that it answers
_HEADERS = HeaderRegistry()
_MESSAGE_ID: Any = MessageIDHeader  # typeshed knows no header class that may be mapped
_HEADERS.map_to_type("in-reply-to", _MESSAGE_ID)
_HEADERS.map_to_type("references", _MESSAGE_ID)
# 7 bits: a relay need not take more, and one without 8BITMIME may spoil what has 8 (RFC 6152)
_POLICY = SMTP.clone(cte_type="7bit", header_factory=_HEADERS)
_STATE_WORDS = ("FIRING ", "TICKET ", "NOTICE ", "UPDATE ")


@dataclass(frozen=True, slots=True)
class Relay:
    """Where mail is handed over."""

    host: str
    port: int
    tls: str  # starttls, tls or none
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    seconds: float = SECONDS  # of everything together


@dataclass(frozen=True, slots=True)
class EmailSender:
    """Hands mail to a relay."""

    name: str  # receiver name
    relay: Relay
    sender: str  # whom it is from
    to: Sequence[str]  # who gets it
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> Conversation:
        """Send one mail to all recipients; those that the relay refuses are logged.

        Raises DeliveryError: no recipient was taken, or the relay took no mail.
        """
        mail, failure = mail_of(message, self.sender, self.to, self.now()), None
        with closing(_Smtp(self.relay)) as smtp:
            try:
                smtp.begin()
                outcome = smtp.send_message(mail, self.sender, list(self.to))
                with suppress(smtplib.SMTPException, OSError, ValueError):
                    smtp.quit()  # the mail is taken, whatever becomes of the farewell
            except (smtplib.SMTPException, OSError, ValueError) as error:
                failure = self._failure(error, smtp.trouble)
        if failure is not None:  # outside the handler: the relay may have repeated the login
            raise failure
        for recipient, (code, text) in sorted(outcome.items()):
            log = structlog.get_logger()
            reason = f"{code} {self._plain(text)}"
            log.warning("recipient refused", receiver=self.name, to=recipient, reason=reason)
        first = (message.conversation or {}).get("subject") or subject(message)
        refused = {"refused": ", ".join(sorted(outcome))} if outcome else {}
        return {"subject": first, **refused}

    def _failure(self, error: Exception, trouble: str | None) -> DeliveryError:
        """What an exception means for the mail; ``trouble``: which bound was met, None = none.

        An answer of 4xx may pass, one of 5xx does not (RFC 5321, 4.2.1).
        """
        permanent, text = False, trouble or _trouble(error)
        if trouble is not None:
            pass
        elif isinstance(error, smtplib.SMTPRecipientsRefused):
            code, reply = error.recipients[min(error.recipients)]
            permanent = min(code for code, _ in error.recipients.values()) >= 500
            return self._answered(code, reply, permanent)
        elif isinstance(error, smtplib.SMTPResponseException):
            return self._answered(error.smtp_code, error.smtp_error, error.smtp_code >= 500)
        elif isinstance(error, smtplib.SMTPNotSupportedError):
            permanent, text = True, "the relay offers no STARTTLS, or no way to log in"
        elif isinstance(error, AddressRefused):
            permanent, text = True, REFUSED
        return DeliveryError(f"{self.name}: {text}", permanent=permanent)

    def _answered(self, code: int, text: Any, permanent: bool) -> DeliveryError:
        reason = f"{self.name} answered {code}: {self._plain(text)}"
        return DeliveryError(reason, permanent=permanent)

    def _plain(self, text: Any) -> str:
        raw = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        user, password = self.relay.user or "", self.relay.password or ""
        # as AUTH LOGIN and AUTH PLAIN write them
        written = (password, f"\0{user}\0{password}") if password else ()
        secrets = [password, *(b64encode(text.encode()).decode() for text in written)]
        return cut(clean(redact(" ".join(raw.split()), secrets)), _REASON_LIMIT)


def _trouble(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "it speaks no TLS that can be used"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "it closed the connection"
    return "no connection"


class _Smtp(smtplib.SMTP):
    """One session: its address is checked, its answers are bounded, and it ends at a deadline.

    Attributes:
        trouble: which bound was met; None = none.
    """

    def __init__(self, relay: Relay) -> None:
        # EHLO with an address, and not with a name that a resolver may take long to find
        super().__init__(local_hostname="[127.0.0.1]", timeout=relay.seconds)
        self._relay, self._host = relay, relay.host.strip("[]")  # that TLS checks the name of
        self._held: socket.socket | None = None
        self._left = _ANSWER_BYTES
        self.trouble: str | None = None
        self._deadline = threading.Timer(relay.seconds, self._end)
        self._deadline.daemon = True

    def begin(self) -> None:
        """Connect, encrypt and log in as the settings say; without STARTTLS nothing is sent."""
        self._deadline.start()
        code, answer = self.connect(self._host, self._relay.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, answer)
        if self._relay.tls == "starttls":
            self.starttls(context=self._context())
        if self._relay.user is not None:
            self.login(self._relay.user, self._relay.password or "")

    def getreply(self) -> tuple[int, bytes]:
        """An answer, whose lines count against the bytes of the session."""
        if self.file is None and self.sock is not None:
            replies: Any = self.sock.makefile("rb")
            read = replies.readline
            replies.readline = lambda size: self._counted(read(size))
            self.file = replies
        return super().getreply()

    def close(self) -> None:
        """End the session, and its deadline."""
        self._deadline.cancel()
        super().close()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _counted(self, line: bytes) -> bytes:
        self._left -= len(line)
        if self._left < 0:
            self.trouble = self.trouble or "its answers are too long"
            raise OSError(self.trouble)
        return line

    def _end(self) -> None:
        """From another thread, in whatever phase it is."""
        self.trouble = self.trouble or f"timed out after {self._relay.seconds:g} s"
        if self._held is not None:
            with suppress(OSError):
                self._held.shutdown(socket.SHUT_RDWR)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        failure: OSError | None = None
        for address in permitted_addresses(host, port):
            try:
                opened = socket.create_connection((address, port), _CONNECT_SECONDS)
            except OSError as error:
                failure = error
                continue
            opened.settimeout(timeout)
            self._held = opened.dup()
            if self.trouble is not None:
                self._end()
            if self._relay.tls == "tls":
                return self._context().wrap_socket(opened, server_hostname=host)
            return opened
        raise failure or OSError("no address")

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._relay.ca_file)
        if self._relay.ca_file is None:
            context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
        return context


def subject(message: Message) -> str:
    """Of the first mail; those after it answer it, with the same one, so that they stay together.

    It names no state: a resolve that answers "FIRING" would be read as a page.
    """
    # of a page that is sent again what it says of that stands before the dot
    text = letter_of(message).title.rpartition(" · ")[2]
    for word in _STATE_WORDS:
        text = text.removeprefix(word)
    return cut(text, _SUBJECT_LIMIT)


def mail_of(message: Message, sender: str, to: Sequence[str], at: datetime) -> EmailMessage:
    """The mail of a message; ``at``: its date."""
    letter = letter_of(message)
    mail = EmailMessage(policy=_POLICY)
    mail["From"], mail["To"] = f"driftwatch <{sender}>", ", ".join(to)
    mail["Date"] = format_datetime(at)
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday answers it
    domain = sender.rpartition("@")[2]
    first = f"<{_local(message.subject)}.{message.kind}@{domain}>"
    if message.kind == "incident" and message.idempotency_key != f"{message.subject}-firing":
        own = f"<{_local(message.idempotency_key)}.incident@{domain}>"
        mail["Message-ID"] = own
        mail["In-Reply-To"] = mail["References"] = first
        before = (message.conversation or {}).get("subject")
        mail["Subject"] = f"Re: {before or subject(message)}"
    else:
        mail["Message-ID"] = first
        mail["Subject"] = subject(message)
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
    rows += [
        f"<p><b>{escape(label)}</b> {escape(text)}</p>" if label else f"<p>{escape(text)}</p>"
        for label, text in letter.lines
    ]
    rows += [f"<p><code>{escape(command)}</code></p>" for command in letter.commands]
    for word, address in letter.links:
        is_address = address.startswith(("http://", "https://"))
        link = f'<a href="{escape(address)}">{escape(word)}</a>'
        rows.append(f"<p>{link if is_address else escape(f'{word}: {address}')}</p>")
    return f"{_HEAD}\n" + "\n".join(rows) + "\n</body></html>\n"


def sender_of(name: str, settings: EmailReceiver) -> EmailSender:
    """The sender of a receiver.

    Raises ConfigError: the password cannot be read.
    """
    relay = Relay(
        settings.host,
        settings.relay_port,
        settings.tls,
        settings.user,
        settings.read("password"),
        settings.ca_file,
    )
    return EmailSender(name, relay, settings.sender, settings.to)
