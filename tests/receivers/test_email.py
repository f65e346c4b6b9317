"""Mail: through a relay that speaks SMTP, as conversations, never more than one header a label."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from fakes.smtp_server import PASSWORD, USER, SmtpServer
from page_cases import CAP, CASES
from receiver_cases import acknowledged, message, refused, repeat, report
from secret_file import secret
from test_http import certificate as certificate_in
from test_http import endless, peer

from driftwatch.receivers.email import EmailSender
from driftwatch.settings.receivers import EmailReceiver

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
TO = ("ana@example.org", "ben@example.org")
FROM = "driftwatch@example.org"


def settings(**rest: Any) -> EmailReceiver:
    usual = {"host": "127.0.0.1", "tls": "none", "from": FROM, "to": TO}
    return EmailReceiver.model_validate({**usual, **rest})


def sender(port: int, password: str = PASSWORD, seconds: float = 10.0, **rest: Any) -> EmailSender:
    rest |= {"password_file": secret(password)} if "user" in rest else {}
    return EmailSender("mail", settings(port=port, **rest), lambda: AT, seconds)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("relay")
    _, cert = certificate_in(folder)
    return cert, folder / "own.key"


def part(mail: EmailMessage, kind: str) -> str:
    body = mail.get_body((kind,))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def test_a_mail_as_it_arrives(golden: Callable[[str, str], None]) -> None:
    with SmtpServer() as relay:
        sender(relay.port).send(message(CASES["batch_drift"].page()))
        (mail,), (envelope,) = relay.mails, relay.envelopes
    assert envelope == ("driftwatch@example.org", TO)
    heads = [f"{name}: {mail[name]}" for name in mail if not name.startswith(("Content", "MIME"))]
    golden("receivers/mail.txt", "\n".join([*heads, "", part(mail, "plain"), part(mail, "html")]))


def test_an_incident_is_one_conversation() -> None:
    events = [message(CAP.page()), repeat(), acknowledged(), message(CAP.resolved())]
    with SmtpServer() as relay:
        conversation = None
        for one in events:
            sent = sender(relay.port).send(replace(one, conversation=conversation))
            conversation = sent or conversation
        sender(relay.port).send(events[0])  # a repeated delivery
        mails = relay.mails
    first, *others, again = mails
    assert len({mail["Message-ID"] for mail in mails}) == len(events)
    assert again["Message-ID"] == first["Message-ID"]
    for mail in others:
        assert mail["In-Reply-To"] == mail["References"] == first["Message-ID"]
        # mail programs keep together what has one subject
        assert mail["Subject"] == f"Re: {first['Subject']}"
    assert not first["Subject"].startswith("FIRING")
    assert part(others[-1], "plain").startswith("RESOLVED host:8000")


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_encrypted_and_logged_in(
    tls: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with SmtpServer(tls, certificate, auth=True) as relay:
        rest = {"tls": tls, "user": USER}
        sender(relay.port, **rest).send(message(CAP.page()))
        assert len(relay.mails) == 1
        wrong = refused(sender(relay.port, "canary-wrong", **rest))
        assert wrong.permanent is True
        assert wrong.message.startswith("mail answered 535")
        monkeypatch.undo()
        untrusted = refused(sender(relay.port, **rest))
        assert "its certificate was not accepted" in untrusted.message
        assert untrusted.permanent is False
        assert len(relay.mails) == 1


def test_an_answer_that_repeats_the_login_is_not_kept(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    plain = b64encode(f"\0{USER}\0{PASSWORD}".encode()).decode()
    with SmtpServer("tls", certificate, auth=True) as relay:
        for written in (PASSWORD, b64encode(PASSWORD.encode()).decode(), plain):
            relay.answers.append(f"550 not {written}")
            error = refused(sender(relay.port, tls="tls", user=USER))
            assert error.message == "mail answered 550: not <secret>"


def test_a_relay_without_starttls_gets_no_password() -> None:
    with SmtpServer() as relay:
        error = refused(sender(relay.port, tls="starttls", user=USER))
    assert error.permanent is True
    assert "no STARTTLS" in error.message


@pytest.mark.parametrize(
    ("answer", "permanent"),
    [("451 try later", False), ("452 full", False), ("550 no", True), ("552 too large", True)],
)
def test_what_an_answer_means(answer: str, permanent: bool) -> None:
    with SmtpServer() as relay:
        relay.answers.append(answer)
        error = refused(sender(relay.port))
        assert error.permanent is permanent
        assert error.message.startswith(f"mail answered {answer[:3]}: {answer[4:]}")
        sender(relay.port).send(message(CAP.page()))
        assert len(relay.mails) == 1


def test_one_recipient_that_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with SmtpServer() as relay:
        relay.refused = {"ana@example.org": "550 no", "ben@example.org": "450 no"}
        assert refused(sender(relay.port)).permanent is False
        relay.refused = {"ben@example.org": "550 no such user"}
        sent = sender(relay.port).send(message(CAP.page()))
        assert relay.envelopes == [("driftwatch@example.org", ("ana@example.org",))]
    assert sent is not None and sent["refused"] == "ben@example.org"
    told = capfd.readouterr().out
    assert "ben@example.org" in told and "550 no such user" in told


HOSTILE = 'x\r\nBcc: eve@example.org\r\n\r\n<script>alert("1")</script> &\u202e' + "y" * 5000


@pytest.mark.parametrize("over", [False, True])
def test_a_label_is_neither_header_nor_html(over: bool) -> None:
    page = CAP.resolved() if over else CAP.page()
    lines = tuple(replace(line, text=HOSTILE) for line in page.lines)
    page = page.model_copy(update={"summary": HOSTILE, "alert": HOSTILE, "lines": lines})
    with SmtpServer() as relay:
        sender(relay.port).send(message(page))
        (mail,), (envelope,) = relay.mails, relay.envelopes
    assert envelope[1] == TO
    assert mail["Bcc"] is None
    assert mail["To"] == ", ".join(TO)
    assert len(mail["Subject"]) < 200
    assert "<script>" not in part(mail, "html")
    assert "&lt;script&gt;" in part(mail, "html")
    assert max(map(len, part(mail, "plain").splitlines())) < 1000


def test_the_report_of_a_week() -> None:
    with SmtpServer() as relay:
        sender(relay.port).send(report())
        (mail,) = relay.mails
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == "driftwatch-2026-W47.html"
    assert attached.get_content().startswith("<!DOCTYPE html>")
    assert mail["Subject"].startswith("Report 2026-W47: ")
    assert part(mail, "plain").startswith(f"{mail['Subject']}\n\nFOR YOU: nothing\n")


def test_a_greeting_that_never_comes_or_never_ends() -> None:
    for wire, why in (
        (lambda connection, over: over.wait(5) and None, "no answer"),
        (
            lambda connection, over: endless(connection, b"220-" + b"x" * 500 + b"\r\n", over),
            "its answers are too long",
        ),
    ):
        with peer(wire) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            error = refused(sender(port, seconds=0.6))
        assert (error.message, error.permanent) == (f"mail: {why}", False)


def test_nobody_there_and_a_refused_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert refused(sender(port)).message == "mail: connection refused"
    assert refused(sender(25, host="169.254.169.254")).permanent is True
