"""Every page in a real Chromium: three widths, no script, axe finds nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request
from web_cases import VARIABLES, Recorded, record_firing, served, web_at

from driftwatch.web.app import HEADERS, PAGES

pytestmark = pytest.mark.browser
WIDTHS = (360, 800, 1600)
# of every run; CI keeps them
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "web-screenshots"


@pytest.fixture(scope="module")
def firing(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """With the change that it advises."""
    return record_firing(tmp_path_factory.mktemp("advised"), advised=True)


@pytest.fixture(scope="module")
def address(firing: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The web as a server, with a person signed in by a proxy on this machine."""
    folder = tmp_path_factory.mktemp("served")
    database = folder / "driftwatch.db"
    shutil.copy(firing.path, database)
    web = web_at(database, firing.now, folder, proxy_addresses=("127.0.0.1",))
    with served(web) as url:
        yield url


@pytest.fixture
def tab(chromium: Browser, address: str) -> Iterator[Page]:
    """A tab of Ana's."""
    context = chromium.new_context(extra_http_headers={"X-Forwarded-User": "Ana"})
    yield context.new_page()
    context.close()


def _addresses(firing: Recorded) -> dict[str, str]:
    """Page path → an address of it."""
    values = VARIABLES | {"incident_id": firing.incident_id}
    return {
        page.path: re.sub(r"{(\w+)(?::\w+)?}", lambda found: values[found[1]], page.path)
        for page in PAGES
    } | {"/sign-in": "/sign-in", "/nowhere": "/nowhere"}


def _wide(tab: Page, but: str) -> dict[str, Any]:
    """Whether the page scrolls sideways, and what sticks out; ``but``: a selector of what may."""
    script = """within => ({
        sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        out: [...document.querySelectorAll('main *')].filter(e =>
            !e.closest(within) && e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.outerHTML.slice(0, 80)).slice(0, 3),
    })"""
    found: dict[str, Any] = tab.evaluate(script, but)
    return found


@pytest.mark.parametrize("path", [page.path for page in PAGES] + ["/sign-in", "/nowhere"])
def test_every_page_at_every_width(tab: Page, address: str, firing: Recorded, path: str) -> None:
    requests: list[Request] = []
    noise: list[str] = []
    tab.on("request", lambda request: requests.append(request))  # it takes no built-in
    tab.on("console", lambda message: noise.append(message.text))
    name = path.strip("/").replace("/", "-").replace("{", "").replace("}", "")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    response = tab.goto(address + _addresses(firing)[path])
    assert response is not None
    assert response.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert response.status == (404 if path == "/nowhere" else 200)
    assert tab.locator("script, [style], [onclick]").count() == 0
    # the tables of a report scroll in their own place
    scrolls = "thead, svg, .t" if path.startswith("/reports/") else "thead, svg"
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert (width, _wide(tab, scrolls)) == (width, {"sideways": 0, "out": []})
        tab.screenshot(path=SCREENSHOTS / f"{name}-{width}.png", full_page=True)
        for scheme in {360: ("light", "dark"), 1600: ("light",)}.get(width, ()):
            tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found = Axe().run(tab)
            assert found.violations_count == 0, f"at {width} px: {found.generate_report()}"
    assert [r.url for r in requests if not r.url.startswith(address)] == []
    assert [text for text in noise if "404" not in text] == []  # nothing the policy had to stop
