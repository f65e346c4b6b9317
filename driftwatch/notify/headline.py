"""The text of a page. Line 1: the state, where, how bad, do what; then since, cause, change or do,
cost, undo, also. Pure; reads a page's JSON (``page.py``).

Only what a person acts on: what is unknown and changes no decision is ``driftwatch explain``'s.
Texts are plain, not escaped: that is the renderer's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import product

from driftwatch.notify.advice import advice_lines, few, imperatives, settings_line, settings_to_give
from driftwatch.notify.page_values import Line, Page, evaluated, form_of, instant, leaf
from driftwatch.notify.phrases.fill import fill
from driftwatch.notify.phrases.limits import full
from driftwatch.notify.verification_line import changed_text, verification_line, verification_texts
from driftwatch.numbers import clean, clock_seconds, cut, duration, moment, span, squeeze

NAME_LIMIT = 20


def state_word(page: Page) -> str:
    """The word of the state; a page that ended without a recovery that was measured is closed."""
    if page["test"]:
        return "TEST"
    if page["event"] == "resolved":
        return "CLOSED" if page.get("resolved_reason") else "RESOLVED"
    if page["event"] == "verified":
        return "VERIFIED"
    if page.get("acknowledgement") is not None:
        return "ACKNOWLEDGED"
    if page["event"] == "updated":
        return "UPDATE"
    if page.get("repeat"):
        return "STILL FIRING"
    return {"page": "FIRING", "ticket": "TICKET", "notice": "NOTICE"}[page["severity"]]


def opening(page: Page) -> str:
    """The state in words, as it stands before the place."""
    word = state_word(page)
    if word == "ACKNOWLEDGED":
        return f"{word} by {_name(page)} {_moment(page, page['acknowledgement']['at'])} ·"
    if word == "STILL FIRING":
        began = instant(page, "started_at") or evaluated(page)
        return f"{word} after {duration((evaluated(page) - began).total_seconds())} ·"
    return word


def _name(page: Page) -> str:
    return squeeze(clean(page["acknowledgement"]["by"]), NAME_LIMIT)


def _moment(page: Page, text: str) -> str:
    return moment(datetime.fromisoformat(text), evaluated(page).date())


HEADLINE_LIMIT = 120  # what a phone shows, Slack's state mark among them
WHERE_LIMIT = 40
SHORT_WHERE_LIMIT = 24

# of a rule whose form has no `says`, after its own summary
_USUAL = (
    "{harm}",
    "since {began} {moved}, {unchanged}",
    "since {began} {moved}",
)


def marked(page: Page, text: str) -> str:
    """``text`` with the state's mark before it, for Slack: a phone's list shows it first."""
    update = "🔴 " if page["severity"] == "page" else ""
    marks = {"FIRING": "🔴 ", "RESOLVED": "✅ ", "CLOSED": "⚪ ", "ACKNOWLEDGED": "🟠 "}
    marks |= dict.fromkeys(("UPDATE", "STILL FIRING"), update)
    return marks.get(state_word(page), "") + text


def target_name(page: Page) -> str:
    """How a person calls the target: ``host:8000``, ``host:8000/1``, ``pool, 4 of 8``."""
    target = page["target"]
    instance, engine = target.get("instance"), target.get("engine", "0")
    if instance:
        return clean(instance if engine == "0" else f"{instance}/{engine}")
    name = clean(target.get("pool") or page["incident"]["key"])
    concerned = page.get("concerned")
    if concerned is None or (page["event"] == "resolved" and concerned["of_targets"] > 1):
        return name
    if concerned["of_targets"] == 1:
        return clean(concerned["first"][0])
    return f"{name}, {concerned['targets']} of {concerned['of_targets']}"


def given_pool(page: Page) -> str | None:
    """The pool's name where somebody gave it one: not "default", not made of the model's name."""
    pool, model = page["target"].get("pool"), page["target"].get("model_name")
    if not pool or pool == "default" or (model and f"/{pool}".endswith(f"/{model}")):
        return None
    return clean(pool)


def where(page: Page) -> str:
    """The target's name, behind its pool's where it does not begin with that."""
    name, pool = target_name(page), given_pool(page)
    return f"{pool} {name}" if pool and not name.startswith(pool) else name


def headline(page: Page) -> str:
    """Line 1, with Slack's mark at most 120 characters: how bad is shortened first."""
    name, pool = target_name(page), given_pool(page)
    wheres = [squeeze(name, WHERE_LIMIT)]
    if pool and not name.startswith(pool):
        wheres.insert(0, f"{squeeze(pool, WHERE_LIMIT)} {wheres[0]}")
    wheres.append(squeeze(name, SHORT_WHERE_LIMIT))
    word = state_word(page)
    if page["event"] == "verified":
        verdicts = verification_texts(page["verification"], evaluated(page).date())
        texts = [f"{word} {where}: {text}" for text in verdicts for where in wheres]
    elif page["event"] == "resolved":
        texts = [text for where in wheres for text in _ended(page, f"{word} {where}")]
    else:
        word = opening(page)
        advices = [f". {text}" for text in imperatives(page)] or [""]
        bads = complaints(page)
        # both are shortened step by step, how bad it is first
        pairs = product(enumerate(bads), enumerate(advices))
        ordered = sorted(pairs, key=lambda pair: (pair[0][0] + pair[1][0], pair[1][0]))
        texts = [f"{word} {w}: {bad}{do}" for (_, bad), (_, do) in ordered for w in wheres]
    limit = HEADLINE_LIMIT - len(marked(page, ""))
    return next((text for text in texts if len(text) <= limit), cut(texts[-1], limit))


def _ended(page: Page, start: str) -> list[str]:
    """After how long, and what is so again; of a closed one why nobody watches it any more."""
    began, ended = instant(page, "started_at"), instant(page, "resolved_at")
    if page.get("resolved_reason"):
        reason = clean(page["resolved_reason"])
        texts = (reason, reason.split(" (")[0])
        return [f"{start}: {text}; driftwatch did not see it recover" for text in texts]
    lasted = ""
    if began is not None and ended is not None:
        lasted = f" after {duration(clock_seconds(began, ended))} ({span(began, ended)})"
    over = next(fill(page, form_of(page)["over"]), f"{clean(page['alert'])} is no longer true")
    return [f"{start}{lasted}: {over}", f"{start}{lasted}"]


def complaints(page: Page) -> list[str]:
    """How bad, longest first: what the rule's page says, else its summary, else the cost."""
    summary = page["annotations"].get("summary")
    says = form_of(page)["says"] or (() if summary else _USUAL)
    return list(fill(page, says)) or [clean(summary or f"{page['alert']} is true")]


LINE_LIMIT = 300


def lines(page: Page) -> tuple[Line, ...]:
    """The body of a page, in reading order."""
    if page["test"]:
        return (Line("Test", "nothing is wrong; the receiver works", weight=9),)
    of_event = {"resolved": _resolved, "verified": _verified}
    written = of_event.get(page["event"], _firing)(page)
    return tuple(replace(line, text=cut(line.text, LINE_LIMIT)) for line in written)


def _firing(page: Page) -> Iterator[Line]:
    # of an update what was measured stands on the page before
    is_first = page["event"] == "firing"
    if (changed := page.get("changed")) is not None:
        yield Line("Changed", clean(changed), instant(page, "evaluated_at"), weight=9)
    if (measured := instant(page, "measured_at")) is not None:
        yield Line("Measured", "", measured, weight=6)
    concerned = page.get("concerned") or {}
    since = next(fill(page, form_of(page)["since"]), "")
    if concerned and 1 < concerned["targets"] < concerned["of_targets"]:
        on = f"on {few(concerned['first'], concerned['targets'])}"
        since = f"{on}; {since}" if since else on
    yield Line("Since", since, instant(page, "started_at"), weight=9)
    if is_first and (cause := _cause(page)) is not None:
        yield Line("Cause", cause, weight=7)
    yield from advice_lines(page)
    if (settings := settings_line(page)) is not None:
        yield Line("Settings", settings, weight=8)
    advised = page["recommendation"] or {}
    also = [*(advised.get("not_cured") or ()), *(advised.get("instead") or ())[1:]]
    if (other := page.get("answered_by")) is not None:
        also.insert(0, f"the same answer as that of {other['alert']} ({other['incident'][:8]})")
    if is_first and not also and advised.get("action") != "no_action":
        also = [text for one in form_of(page)["also"] for text in fill(page, [one])]
    if also:
        yield Line("Also", "; ".join(map(clean, also)), weight=4)


def _cause(page: Page) -> str | None:
    """Why: the inputs that the walk lacks, else the first of the rule's causes that is known."""
    if settings := settings_to_give(page):
        lacking = " and ".join(settings)
        return f"not determined: without {lacking} driftwatch cannot tell which limit is full"
    if leaf(page) == "undetermined":
        entries = {name: page["evidence"].get(name, {}) for name in page["diagnosis"]["missing"]}
        whys = [f"{n} is unknown ({one.get('reason') or 'no data'})" for n, one in entries.items()]
        return f"not determined: {clean('; '.join(whys)) or 'an input is unknown'}"
    return next(fill(page, form_of(page)["cause"]), None)


def _resolved(page: Page) -> Iterator[Line]:
    yield _was(page)
    if (document := page.get("verification")) is not None:
        ended = instant(page, "resolved_at")
        today = ended.date() if ended is not None else None
        yield Line("Verified", verification_line(document, today), weight=8)


def _verified(page: Page) -> Iterator[Line]:
    """What came of the change that the page had advised."""
    document = page["verification"]
    at = datetime.fromisoformat(document["change"]["at"])
    yield Line("Verified", verification_line(document, at.date()), weight=9)
    yield Line("Changed", changed_text(document), at, weight=8)
    yield _was(page)
    if (ended := instant(page, "resolved_at")) is not None:
        yield Line("Until", "", ended, weight=6)


def _was(page: Page) -> Line:
    """What the page said, in the past tense."""
    bad, limit = complaints(page)[0], full(page)
    text = bad if limit is None or bad.startswith(limit) else f"{bad}; {limit}"
    return Line("Was", text, weight=9)
