"""What a page tells people to do, or why it cannot. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Reason, with_lead
from driftwatch.notify.numbers import clean, setting
from driftwatch.notify.page_values import Page, value

NO_KNOB_HELPS = "No knob helps"
_KEEP_SETTINGS = "Do not change a knob"


def imperatives(page: Page) -> list[str]:
    """Do what, longest first; empty where there is nothing to do."""
    advised = page["recommendation"]
    if page["severity"] == "notice":
        return []
    if advised is not None and advised["action"] == "change":
        return [f"Set {setting_change(advised)}"]
    if (lacking := no_verdict(page)) is not None:
        # the replay is asked again: what it lacks may come with time
        none = "No verdict yet" if page.get("asked_again_at") else "No verdict"
        return [f"{none}: {lacking}", none]
    if advised is not None and advised.get("instead"):
        first = clean(advised["instead"][0]).split(":")[0]
        if advised.get("basis") == "measured":  # no knob was judged
            first = first[:1].upper() + first[1:]
            return [f"{first}; no setting could be judged", first]
        return [f"{NO_KNOB_HELPS}: {first}", NO_KNOB_HELPS]
    if advised is not None and advised["action"] == "no_action":
        return [f"No action: {why_of(advised)}", "No action"]
    advice = full_advice(page)
    if not advice:
        return []
    # shorter and shorter: without what stands in brackets, then clause by clause
    shorter = [advice, advice.split(" (")[0]]
    shorter += [advice[:at] for at in range(len(advice) - 1, 0, -1) if advice[at] in ",;:"]
    return [text for text in shorter if text.count("(") == text.count(")")]


def no_verdict(page: Page) -> str | None:
    """What keeps the diagnosis or the advice from an answer, None where nothing does."""
    diagnosis, advised = page["diagnosis"], page["recommendation"]
    if value(page, "gpus_lost"):
        # what is to be done does not wait for the answer
        return None
    if advised is not None and advised.get("basis") is not None:
        return None
    if diagnosis is not None and diagnosis["leaf"] == "undetermined":
        if diagnosis["missing"] == ["binding_limit"]:
            # which limit cannot be told: the settings that would tell are what is missing
            # and without the use of the KV cache none of the settings would
            kv = "kv_cache_usage_ratio"
            unknown = [name for name in COLUMN_KNOBS if value(page, name) is None]
            unknown = [kv] if value(page, kv) is None else unknown
            return (
                f"{' and '.join(unknown)} unknown"
                if unknown
                else "the configured limits are not full"
            )
        return f"{', '.join(map(clean, diagnosis['missing'])) or 'its inputs'} unknown"
    if advised is not None and advised["action"] == "insufficient":
        # what a leaf or an alert says by itself holds without a replay
        return None if full_advice(page) else why_of(advised)
    if advised is not None and advised["reason_code"] == "undetermined":
        return clean(advised["reason"])
    return None


def why_of(advised: Mapping[str, Any]) -> str:
    """The reason of a page's recommendation, as a sentence of its own."""
    return clean(with_lead(Reason(advised["reason_code"], advised["reason"])))


def full_advice(page: Page) -> str | None:
    """What to do instead of changing a knob: the leaf's advice, the reason of "none", a default."""
    diagnosis, advised = page["diagnosis"], page["recommendation"]
    said = diagnosis["advice"] if diagnosis is not None else None
    if said is None and advised is not None and advised["action"] == "none":
        said = _KEEP_SETTINGS
        if advised["reason_code"] in ("leaf", "engine", "gpus_lost"):
            said = why_of(advised)
    many = (page.get("concerned") or {}).get("targets", 1) > 1
    if many and diagnosis is not None and diagnosis["leaf"] == "replica_slow":
        said = None  # what is said of one of several is no advice for all
    said = (
        said or (many and _ADVICE_OF_MANY.get(page["alert"])) or DEFAULT_ADVICE.get(page["alert"])
    )
    return None if not said else clean(said[:1].upper() + said[1:]).rstrip(".")


def setting_change(advised: Mapping[str, Any]) -> str:
    """``max_num_seqs 8 (inferred) → 40``, and every other setting of the same change."""
    return ", ".join(
        setting(one["knob"], one["from"], one["to"], one.get("from_provenance"))
        for one in (advised, *advised.get("also", ()))
    )


# what to do where neither a leaf nor a recommendation says it
DEFAULT_ADVICE: Mapping[str, str] = {
    "EngineStuck": "Do not change a knob; restart the engine",
    "GpuLost": "Do not change a knob; drain it, reset the GPU",
    "DeferredAdmission": "Do not change a knob; see LoRA slots, KV transfer, grammar",
    "CoverageLost": "Check the server and its scrape",
    "SlowerAtEqualLoad": "Do not change a knob; drain it",
    "ReplicaSlow": "Do not change a knob; drain it",
    "LatencyCreep": "Do not change a knob; look for what changed in those days",
    "RetuneAdvised": "No hurry: tune for these lengths, then pin",
}
_ADVICE_OF_MANY: Mapping[str, str] = {
    "CoverageLost": "Check service discovery and the servers",
    "SlowerAtEqualLoad": "Do not change a knob; look for what they share",
    "ReplicaSlow": "Do not change a knob; look for what they share",
}
