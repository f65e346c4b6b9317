"""Line 1 of a page: where, how bad, do what. Pure; reads a page's JSON, see ``page.py``."""

from __future__ import annotations

from driftwatch.notify.advice import imperatives
from driftwatch.notify.numbers import clean, clock_seconds, cut, duration, span, squeeze
from driftwatch.notify.page_values import Page, evaluated, form_of, instant
from driftwatch.notify.phrases.fill import fill
from driftwatch.notify.verification_line import verification_texts

# a phone shows 120 characters, and Slack's state mark takes two of them
HEADLINE_LIMIT = 118
WHERE_LIMIT = 40
SHORT_WHERE_LIMIT = 24

# event → the word of an incident's later messages
_AFTERWARDS = {"advised": "UPDATE", "verified": "VERIFIED"}
# of a rule whose form has no `says`, after its own summary
_USUAL = (
    "{missed}",
    "{queueing}",
    "{full}",
    "since {began} {moved}, {kept}",
    "since {began} {moved}",
)


def state_word(page: Page) -> str:
    """The word of the state; a page that ended without a recovery that was seen is closed."""
    if page["test"]:
        return "TEST"
    if page["event"] == "resolved":
        return "CLOSED" if page.get("resolved_reason") else "RESOLVED"
    word = {"page": "FIRING", "ticket": "TICKET", "notice": "NOTICE"}[page["severity"]]
    return _AFTERWARDS.get(page["event"], word)


def marked(page: Page, text: str) -> str:
    """``text`` with the state's mark before it, for Slack: a phone's list shows it first."""
    update = "🔴 " if page["severity"] == "page" else ""
    marks = {"FIRING": "🔴 ", "UPDATE": update, "RESOLVED": "✅ ", "CLOSED": "⚪ "}
    return marks.get(state_word(page), "") + text


def target_name(page: Page) -> str:
    """How a person calls the target: ``host:8000``, ``host:8000/1``, ``pool, 4 of 8``."""
    target = page["target"]
    instance, engine = target.get("instance"), target.get("engine", "0")
    if instance:
        return clean(instance if engine == "0" else f"{instance}/{engine}")
    name = clean(target.get("pool") or page["incident"]["key"])
    concerned = page.get("concerned")
    if concerned is None:
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


def headline(page: Page) -> str:
    """Line 1, at most 118 characters: how bad is told shorter before what to do is."""
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
        advices = [f". {text}" for text in imperatives(page)] or [""]
        bads = complaints(page)
        texts = [f"{word} {w}: {bad}{do}" for do in advices for w in wheres for bad in bads]
    fitting = (text for text in texts if len(text) <= HEADLINE_LIMIT)
    return next(fitting, cut(texts[-1], HEADLINE_LIMIT))


def _ended(page: Page, start: str) -> list[str]:
    began, ended = instant(page, "started_at"), instant(page, "resolved_at")
    if page.get("resolved_reason"):
        # why nobody watches it any more says more than what was true of it
        reason = clean(page["resolved_reason"])
        return [
            f"{start}: {text}; recovery was not seen" for text in (reason, reason.split(" (")[0])
        ]
    lasted = ""
    if began is not None and ended is not None:
        lasted = f" after {duration(clock_seconds(began, ended))} ({span(began, ended)})"
    return [*(f"{start}{lasted}. It was: {bad}" for bad in complaints(page)), f"{start}{lasted}"]


def complaints(page: Page) -> list[str]:
    """How bad, longest first: what the rule's page says, else its summary, else the cost."""
    summary = page["annotations"].get("summary")
    says = form_of(page)["says"] or (() if summary else _USUAL)
    return list(fill(page, says)) or [clean(summary or f"{page['alert']} is true")]
