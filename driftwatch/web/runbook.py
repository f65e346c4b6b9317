"""The runbook: what each alert means and what to do first, an anchor an alert."""

from __future__ import annotations

import re
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from driftwatch.installation import shipped
from driftwatch.notify.page import http_url
from driftwatch.numbers import clean
from driftwatch.rulebook.rules import Rule
from driftwatch.web.page import Page, Shown, Visit

PATH = "/runbook"
_HEADING = re.compile(r"<h3><code>(\w+)</code></h3>")
# of a file that the web does not serve only the words stay
_OTHER_FILE = re.compile(r"\[([^\]]+)\]\((?!#)[^)]+\)")


@cache
def _shipped() -> tuple[Markup, frozenset[str]]:
    """docs/oncall/runbook.md as HTML below its title, and the names that have an anchor."""
    text = (shipped("docs") / "oncall" / "runbook.md").read_text(encoding="utf-8")
    text = _OTHER_FILE.sub(r"\1", text.partition("\n")[2])
    # rich brings this library; raw HTML stays text
    html = MarkdownIt("commonmark", {"html": False}).render(text)
    names = frozenset(_HEADING.findall(html))
    return Markup(_HEADING.sub(r'<h3 id="\1"><code>\1</code></h3>', html)), names  # noqa: S704


def load(visit: Visit) -> Shown:
    """The shipped runbook, and rules that only the configuration has, an alert once."""
    html, names = _shipped()
    rules = {rule.alert: rule for rule in visit.web.plan.rules}
    return {
        "title": "Runbook: what an alert means and what to do",
        "html": html,
        "alerts": sorted(rules),
        "own": [_own(rule) for alert, rule in sorted(rules.items()) if alert not in names],
    }


def _own(rule: Rule) -> tuple[str, str, str, str | None]:
    """Alert, severity, what it says of itself, and the address of its runbook."""
    texts = [rule.annotations.get("summary"), rule.page.advice]
    words = "; ".join(clean(text) for text in texts if text)
    return rule.alert, rule.severity, words, http_url(rule.annotations.get("runbook_url"))


PAGE = Page(PATH, "Runbook", "runbook.html", load, is_placed=True)
