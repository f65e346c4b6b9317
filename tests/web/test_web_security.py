"""Who may do what, from where, with which form; and what is refused before it is read."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import itsdangerous
import pytest
from starlette.testclient import TestClient
from web_cases import ANA, BEN, TOKEN, Recorded, browser, send, web_at

from driftwatch.errors import ConfigError
from driftwatch.store.store import Store
from driftwatch.web.access import People
from driftwatch.web.app import HEADERS, Web
from tests.outbox import latest_actions


@pytest.fixture
def page(firing: Recorded) -> str:
    return f"/incidents/{firing.incident_id}"


def test_every_answer_has_its_headers_and_is_kept_by_no_cache(web: Web, page: str) -> None:
    client = browser(web)
    for path in ("/fleet", page, "/sign-in", "/nowhere", "/"):
        answer = client.get(path, headers=ANA)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, path
        assert "script-src" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store" and "ETag" not in answer.headers
    (style,) = re.findall(r'href="(/static/[^"]+css)"', client.get("/fleet").text)
    assert client.get(style).headers["Cache-Control"].startswith("public")


def test_only_its_own_names_are_answered(firing: Recorded, tmp_path: Path) -> None:
    client = browser(web_at(firing.path, firing.now, tmp_path, external_url="https://ops.example"))
    own = ("TESTSERVER:9096", "127.0.0.1:9096", "[::1]:9096", "ops.example:443")
    for host in own:
        assert client.get("/sign-in", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "testserver.evil.example", "", "[::2]"):
        answer = client.get("/sign-in", headers={"Host": host})
        assert (answer.status_code, answer.headers["X-Frame-Options"]) == (400, "DENY"), host


@pytest.mark.parametrize(
    ("method", "path", "kind", "status"),
    [
        ("POST", "/note", {"content": b"x" * 10_000_000}, 413),
        ("POST", "/note", {"content": iter([b"comment="] + [b"x" * 9000] * 10)}, 413),
        ("POST", "/note", {"json": {"comment": "x"}}, 415),
        ("POST", "/note", {"data": {f"f{n}": "x" for n in range(60)}}, 400),
        ("POST", "/note", {"data": {"comment": ""}}, 409),
        ("POST", "/note", {"data": {"comment": "x" * 501}}, 400),
        ("POST", "/note", {"data": {"coment": "x"}}, 400),
        ("POST", "/silence", {"data": {"hours": "nan"}}, 400),
        ("POST", "/silence", {"data": {"hours": "1e9"}}, 400),
        ("POST", "/note", {"data": {"mark": "splendid"}}, 400),
        ("GET", "/acknowledge", {}, 405),
        ("DELETE", "", {}, 405),
        ("GET", "/../../../etc/passwd", {}, 404),
    ],
)
def test_what_is_no_form_is_refused(
    web: Web, page: str, method: str, path: str, kind: dict[str, Any], status: int
) -> None:
    headers = dict(ANA)
    if "content" in kind:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    answer = browser(web).request(method, page + path, headers=headers, **kind)
    assert answer.status_code == status
    assert "Traceback" not in answer.text and len(answer.text) < 20_000


def test_nobody_acts_without_being_somebody(
    web: Web, page: str, opened: Callable[[], Store]
) -> None:
    outside = browser(web, address="10.0.0.8")
    html = outside.get(page, headers=ANA).text  # the header of a stranger's machine
    assert "Sign in to act" in html and "<form method" not in html
    for headers in (ANA, {}):
        assert outside.post(f"{page}/acknowledge", headers=headers).status_code == 403
    # of two headers one may be the client's own
    twice = [("X-Forwarded-User", "Ana"), ("X-Forwarded-User", "Ben")]
    assert "Acknowledge as" not in browser(web).get(page, headers=twice).text
    sites = [{"Origin": one} for one in ("https://evil.example", "null", "", "https://[")]
    sites += [{"Sec-Fetch-Site": one} for one in ("cross-site", "same-site")]
    for site in sites:
        answer = browser(web).post(f"{page}/acknowledge", headers=ANA | site)
        assert answer.status_code == 403 and "Another site sent this form." in answer.text
    with opened() as store:
        assert latest_actions(store, 5) == []


def cookie(web: Web, key: str, **session: Any) -> dict[str, str]:
    """A session that this process signed, of the token that made this key."""
    session = {"name": "Eve X", "at": int(web.clock.now().timestamp()), "key": key} | session
    packed = base64.b64encode(json.dumps(session).encode())
    signed = itsdangerous.TimestampSigner(web.people.secret).sign(packed)
    return {"Cookie": f"driftwatch_session={signed.decode()}"}


@pytest.mark.parametrize("text", [None, "", "x", "two\nlines of a token"])
def test_a_token_that_cannot_be_used_stops_nobody_from_looking(
    web: Web, page: str, tmp_path: Path, text: str | None
) -> None:
    """As while a secret is replaced; what is signed with nothing, or little, is nobody's."""
    file = tmp_path / "web.token"
    file.unlink() if text is None else file.write_text(text)
    stranger = browser(web, address="10.0.0.8")
    key = hmac.new((text or "").encode(), b"session", hashlib.sha256).hexdigest()
    for path in ("/fleet", page, "/sign-in", "/nowhere"):
        answer = stranger.get(path, headers=cookie(web, key))
        assert answer.status_code == (404 if path == "/nowhere" else 200), answer.text
        assert "Eve X" not in answer.text
    assert stranger.post(f"{page}/acknowledge", headers=cookie(web, key)).status_code == 403
    assert send(browser(web), page, "note", ANA, comment="through the proxy").status_code == 303


def test_signing_in_and_out(web: Web, page: str, tmp_path: Path) -> None:
    client = browser(web, address="10.0.0.8")
    assert f'name="back" value="{page}"' in client.get(f"/sign-in?back={page}").text
    wrong = client.post("/sign-in", data={"name": "Ana", "token": "no", "back": page})
    assert wrong.status_code == 403 and "not the token" in wrong.text
    assert 'value="Ana"' in wrong.text
    wrong = client.post("/sign-in", data={"name": " ", "token": TOKEN, "back": page})
    assert wrong.status_code == 403 and "Give your name" in wrong.text
    data = {"name": "Ana", "token": TOKEN, "back": page}
    right = client.post("/sign-in", data=data)
    assert (right.status_code, right.headers["location"]) == (303, page)
    set_cookie = right.headers["set-cookie"]
    assert "httponly" in set_cookie and "samesite=strict" in set_cookie
    assert TOKEN not in set_cookie
    other = browser(web, address="10.0.0.8")
    assert other.post("/sign-in", data=data | {"back": "//evil/"}).headers["location"] == "/"
    assert "Acknowledge as Ana" in client.get(page).text
    done = client.post(f"{page}/acknowledge")
    assert done.headers["location"] == page
    assert client.post("/sign-out").status_code == 303
    assert "Sign in to act" in client.get(page).text
    assert "End the acknowledgement" in other.get(page).text or other.get(page).status_code == 200
    (tmp_path / "web.token").write_text("another-token-than-before")  # ends every session
    assert "Sign in to act" in other.get(page).text


def test_a_session_ends_after_twelve_hours_and_one_that_nobody_signed_is_nobodys(
    web: Web, page: str
) -> None:
    client = browser(web, address="10.0.0.8")
    answer = client.post("/sign-in", data={"name": "Ana", "token": TOKEN})
    session = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}  # no browser forgets it
    for hours, is_signed_in in ((11.9, True), (0.2, False), (-24, False)):
        web.clock.advance(timedelta(hours=hours))
        html = browser(web, address="10.0.0.8").get(page, headers=session).text
        assert ("Acknowledge as Ana" in html) is is_signed_in
    for text in ("", "x", "QW5h.1", "QW5h.99999999999.x", "..", "e30=.x.y"):
        html = client.get(page, headers={"Cookie": f"driftwatch_session={text}"}).text
        assert "Acknowledge as" not in html, text


def test_below_a_path_every_link_has_it(firing: Recorded, tmp_path: Path) -> None:
    web = web_at(firing.path, firing.now, tmp_path, external_url="https://ops.example/drift/")
    client = browser(web)
    for path in ("/fleet", "/drift/fleet"):  # a proxy may take the path off, or leave it
        html = client.get(path).text
        assert f'href="/drift/incidents/{firing.incident_id}"' in html
        assert 'href="/static' not in html
    stranger = TestClient(client.app, base_url="https://testserver", follow_redirects=False)
    data, site = {"name": "Ana", "token": TOKEN}, {"Origin": "https://ops.example"}
    answer = stranger.post("/drift/sign-in", data=data, headers=site)
    assert re.search("path=/drift;.*; secure", answer.headers["set-cookie"])


def test_of_two_at_once_one_has_it_and_the_other_learns_who(web: Web, page: str) -> None:
    client = browser(web)
    assert send(client, page, "acknowledge", ANA).status_code == 303
    late = send(client, page, "acknowledge", BEN, comment="mine <b>")
    assert late.status_code == 409 and "Ana acknowledged it first, " in late.text
    assert "you changed nothing" in late.text and "mine &lt;b&gt;" in late.text
    html = client.get(page, headers=BEN).text
    assert "Ana acknowledged it" in html and "End the acknowledgement of Ana" in html
    # a form of before ends no other acknowledgement
    wrong = send(client, page, "unacknowledge", BEN, holder="Ben")
    assert wrong.status_code == 409 and "Ana has acknowledged it: nothing" in wrong.text
    for _ in range(2):
        assert send(client, page, "unacknowledge", BEN, holder="Ana").status_code == 303
    assert "Nobody has acknowledged it" in client.get(page).text


def test_a_token_that_is_too_short_is_a_problem_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(ConfigError, match="shorter than 16") as refused:
        People(tmp_path / "short", None).require_token()
    assert "secret\n" not in str(refused.value)
