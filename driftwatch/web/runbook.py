"""The runbook: what each alert means and what to do first. An anchor shows its alert alone."""

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
_STEPS, _STEPS_OF = re.compile(r"<ol>.*?</ol>", re.DOTALL), re.compile(r"steps of <code>(\w+)<")
# of a file that the web does not serve only the words stay
_OTHER_FILE = re.compile(r"\[([^\]]+)\]\((?!#)[^)]+\)")


@cache
def _shipped() -> tuple[Markup, dict[str, Markup]]:
    """docs/oncall/runbook.md as HTML: what stands above the alerts, and alert or cause → its text,
    with the steps of another where it names these.
    """
    text = (shipped("docs") / "oncall" / "runbook.md").read_text(encoding="utf-8")
    text = _OTHER_FILE.sub(r"\1", text.partition("\n")[2])
    # rich brings this library; raw HTML stays text
    html = MarkdownIt("commonmark", {"html": False}).render(text)
    top, *parts = _HEADING.split(re.sub(r"<h2>.*", "", html))
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    for name, entry in entries.items():
        for other in _STEPS_OF.findall(entry):
            entries[name] = entry + "".join(_STEPS.findall(entries[other])[:1])
    names = re.compile(f"<code>({'|'.join(entries)})</code>")
    linked = {
        name: names.sub(r'<a href="#\1"><code>\1</code></a>', e) for name, e in entries.items()
    }
    return Markup(top), {name: Markup(entry) for name, entry in linked.items()}  # noqa: S704


def load(visit: Visit) -> Shown:
    """The shipped runbook, and an entry per alert that only the configuration has."""
    top, entries = _shipped()
    rules = {rule.alert: rule for rule in visit.web.plan.rules}
    return {
        "title": "Runbook: what an alert means and what to do",
        "top": top,
        "entries": entries,
        "alerts": sorted(rules),
        "causes": [name for name in entries if name not in rules and name.islower()],
        "own": [_own(rule) for alert, rule in sorted(rules.items()) if alert not in entries],
    }


def _own(rule: Rule) -> tuple[str, str, str, str | None]:
    """Alert, severity, its own summary and advice, and the address of its runbook."""
    texts = [rule.annotations.get("summary"), rule.page.advice]
    words = "; ".join(clean(text) for text in texts if text)
    return rule.alert, rule.severity, words, http_url(rule.annotations.get("runbook_url"))


PAGE = Page(PATH, "Runbook", "runbook.html", load)
