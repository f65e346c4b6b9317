"""What a page tells people to do, or why it cannot. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Reason, with_lead
from driftwatch.notify.numbers import clean, moment, setting
from driftwatch.notify.page_values import Line, Page, evaluated, form_of, leaf, many, value
from driftwatch.notify.phrases.fill import fill
from driftwatch.notify.phrases.limits import room

NO_KNOB_HELPS = "No knob helps"
_KEEP_SETTINGS = "Do not change a knob"
# reasons that say by themselves what to do
_ADVICE_CODES = ("leaf", "engine", "gpus_lost")


def imperatives(page: Page) -> list[str]:
    """Do what, longest first; empty where there is nothing to do."""
    advised = page["recommendation"]
    if page["severity"] == "notice":
        return list(fill(page, filter(None, [form_of(page)["advice"]])))
    if advised is not None and advised["action"] == "change":
        return [f"Set {setting_change(advised)}"]
    if (lacking := no_verdict(page)) is not None:
        return [f"{(start := _no_advice(page))[0]}{lacking}{start[1]}", start[2]]
    if advised is not None and advised.get("instead"):
        first = clean(advised["instead"][0]).split(":")[0]
        if advised.get("basis") == "measured":  # no knob was judged
            first = first[:1].upper() + first[1:]
            return [f"{first}; no setting could be judged", first]
        return [f"{NO_KNOB_HELPS}: {first}", NO_KNOB_HELPS]
    if advised is not None and advised["action"] == "no_action":
        return [f"Nothing to do: {why_of(advised)}", "Nothing to do"]
    advice = full_advice(page)
    if not advice:
        return []
    # shorter and shorter: without what stands in brackets, then clause by clause
    shorter = [advice, advice.split(" (")[0]]
    shorter += [advice[:at] for at in range(len(advice) - 1, 0, -1) if advice[at] in ",;:"]
    return [text for text in shorter if text.count("(") == text.count(")")]


def _no_advice(page: Page) -> tuple[str, str, str]:
    """What stands before and behind the reason, and what says it without one."""
    if (again := page.get("asked_again_at")) is None:
        return "No advice: ", "", "No advice"
    at = f"Advice at {moment(datetime.fromisoformat(again), evaluated(page).date())}"
    return f"{at} (", ")", at


def no_verdict(page: Page) -> str | None:
    """What keeps the diagnosis or the advice from an answer, None where nothing does."""
    diagnosis, advised = page["diagnosis"], page["recommendation"]
    if value(page, "gpus_lost") or (advised is not None and advised.get("basis") is not None):
        return None
    if leaf(page) == "undetermined":
        if diagnosis["missing"] != ["binding_limit"]:
            return f"{', '.join(map(clean, diagnosis['missing'])) or 'its inputs'} unknown"
        # the settings that would tell which limit is full; none would without the KV cache's use
        kv = "kv_cache_usage_ratio"
        unknown = (
            [kv] if value(page, kv) is None else [n for n in COLUMN_KNOBS if value(page, n) is None]
        )
        return f"{' and '.join(unknown)} unknown" if unknown else "no configured limit is full"
    if advised is not None and advised["action"] == "insufficient":
        # what a leaf or a rule says by itself holds without a replay
        return None if full_advice(page) else why_of(advised)
    if advised is not None and _code(advised) == "undetermined":
        return clean(advised["reason"])
    return None


def _code(advised: Mapping[str, Any]) -> str:
    """The code of the reason; a stored page of 0.6 has none."""
    return str(advised.get("reason_code", ""))


def why_of(advised: Mapping[str, Any]) -> str:
    """The reason of a page's recommendation, as a sentence of its own."""
    return clean(with_lead(Reason(_code(advised), advised["reason"])))


def full_advice(page: Page) -> str | None:
    """What to do instead of changing a knob: what the leaf says, the reason, or the rule."""
    diagnosis, advised = page["diagnosis"], page["recommendation"]
    form = form_of(page)
    text = diagnosis["advice"] if diagnosis is not None else None
    if text is None and advised is not None and advised["action"] == "none":
        text = why_of(advised) if _code(advised) in _ADVICE_CODES else _KEEP_SETTINGS
    if many(page) and leaf(page) == "replica_slow":
        text = None  # what is said of one of several is no advice for all
    text = text or (many(page) and form["advice_of_many"]) or form["advice"]
    return None if not text else clean(text[:1].upper() + text[1:]).rstrip(".")


def setting_change(advised: Mapping[str, Any]) -> str:
    """``max_num_seqs 8 (inferred) → 40``, and every other setting of the same change."""
    return ", ".join(
        setting(one["knob"], one["from"], one["to"], one.get("from_provenance"))
        for one in (advised, *advised.get("also", ()))
    )


def advice_lines(page: Page) -> Iterator[Line]:
    """*Change*, *Cost* and *Undo*, or *Do* and why no knob helps."""
    advised = page["recommendation"]
    if page["severity"] == "notice":
        return
    if advised is not None and advised["action"] == "change":
        brings = "; ".join(map(clean, advised["effect"])) if advised.get("effect") else ""
        brings = brings or why_of(advised)
        brings = brings[:1].upper() + brings[1:]
        yield Line("Change", f"{setting_change(advised)}. {brings}", weight=8)
        if advised["price"]:
            yield Line("Cost", "; ".join(map(clean, advised["price"])), weight=7)
        if advised["undo"]:
            when = f", if {clean(advised['wrong_if'])}" if advised["wrong_if"] else ""
            yield Line("Undo", f"{clean(advised['undo'])}{when}", weight=6)
        return
    if (lacking := no_verdict(page)) is not None:
        if (again := page.get("asked_again_at")) is not None:
            yield Line("Advice", lacking, datetime.fromisoformat(again), weight=7)
        elif lacking not in page["summary"]:
            yield Line("No advice", lacking, weight=7)
        return
    if advised is not None and (instead := advised.get("instead")):
        yield Line("Do", "; ".join(map(clean, instead)), weight=8)
        yield Line("Why", why_of(advised), weight=6)
        return
    advice, more = full_advice(page) or "", room(page)
    if more or advice not in page["summary"]:
        yield Line(
            "Do", ". ".join(filter(None, (advice, more and more[:1].upper() + more[1:]))), weight=8
        )
    if advised is not None and _code(advised) not in _ADVICE_CODES:
        reason = why_of(advised)
        if reason not in page["summary"] and reason.lower() != advice.lower():
            yield Line("Why", reason, weight=6)
