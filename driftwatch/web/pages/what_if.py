"""What if: other settings under an incident's traffic, simulated in the background."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, ValidationError

from driftwatch.errors import UsageError
from driftwatch.incidents.actions import WEB
from driftwatch.knobs import refusal
from driftwatch.model import Incident, TargetKey
from driftwatch.notify.numbers import clean, moment, utc_text
from driftwatch.pipeline.members import target_of
from driftwatch.pipeline.stored_question import busiest
from driftwatch.pipeline.stored_state import newest, stored_targets
from driftwatch.tasks.queue import WorkerQueue
from driftwatch.tasks.task import Unfinished
from driftwatch.web.forecast import Forecast
from driftwatch.web.forecast_process import LIMIT_SECONDS, what_if_task
from driftwatch.web.page import Deed, Done, Fields, Form, Link, NotFound, Page, View, Visit
from driftwatch.web.pages.incident import PATH as INCIDENT
from driftwatch.web.pages.incident import forecast_links, incident_named, incident_path

FORM_PATH = f"{INCIDENT}/what-if"
PATH = f"{FORM_PATH}/{{forecast_id}}"
_MOST = 10_000_000
# that are not answered yet, of all people
_MOST_UNANSWERED = 5


class WhatIf(Fields):
    """Settings to try: those of the scheduler together, the others one by one."""

    max_num_seqs: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    max_num_active_seqs: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    long_prefill_token_threshold: Annotated[int, Field(ge=1, le=_MOST)] | None = None
    replicas: Annotated[int, Field(ge=1, le=10_000)] | None = None
    prefix_hit_percent: Annotated[float, Field(ge=0, lt=100)] | None = None
    fp8_kv_cache: bool = False

    def values(self) -> dict[str, float]:
        """As ``driftwatch recommend --what-if`` names them."""
        fields = self.model_dump(exclude_none=True)
        percent, fp8 = fields.pop("prefix_hit_percent", None), fields.pop("fp8_kv_cache")
        values = {name: float(value) for name, value in fields.items()}
        if percent is not None:
            values["prefix_hit_ratio"] = percent / 100
        return values | ({"kv_cache_dtype_fp8": 1.0} if fp8 else {})


class WhatIfView(View):
    """A forecast, or how far it is."""

    forecast: Forecast
    incident: Link
    progress: str | None = Field(description="what is done now; null: there is nothing to wait for")


def load(visit: Visit) -> WhatIfView:
    """The forecast.

    Raises NotFound: there is none of that id, or it is of another incident.
    """
    incident = incident_named(visit.store, visit.path["incident_id"])
    forecast = _stored_forecast(visit, incident)
    progress = None
    if forecast.state == "waiting":
        progress = _progress(visit, forecast)
        if progress is None:
            why = _why_unanswered(visit, forecast)
            forecast = forecast.model_copy(update={"state": "no forecast", "answers": (why,)})
    return WhatIfView(
        title=f"What if {forecast.question}: {forecast.target}",
        forecast=forecast,
        incident=Link(
            text=f"Incident {incident.id[:8]}, {clean(incident.alert)}",
            path=incident_path(incident.id),
        ),
        progress=progress,
    )


def _progress(visit: Visit, forecast: Forecast) -> str | None:
    """What is done now; None: nothing has it any more."""
    tasks = visit.web.tasks
    unfinished = tasks.unfinished(visit.store, "interactive")
    keys = [one.task.key for one in unfinished]
    if forecast.forecast_id in keys:
        before = keys.index(forecast.forecast_id)
        if unfinished[before].is_running:
            return f"being simulated: usually 10 s, at most {LIMIT_SECONDS} s"
        if before:
            return f"{before} {'forecast is' if before == 1 else 'forecasts are'} simulated first"
        return "it is simulated next"
    longest = timedelta(seconds=LIMIT_SECONDS * _MOST_UNANSWERED)
    if not isinstance(tasks, WorkerQueue) and visit.now < forecast.at + longest:
        until = moment(forecast.at + longest, visit.now.date())
        return f"not here: if another process of driftwatch web has it, it answers by {until}"
    return None


def _why_unanswered(visit: Visit, forecast: Forecast) -> str:
    if (failure := visit.store.task_failure(forecast.forecast_id)) is not None:
        return f"its task failed: {clean(failure.reason)}"
    if isinstance(visit.web.tasks, WorkerQueue):
        return "its task is gone; ask again"
    return "driftwatch web was restarted before this was answered; ask again"


def _stored_forecast(visit: Visit, incident: Incident) -> Forecast:
    number = visit.path["forecast_id"]
    document = visit.store.forecast(number)
    try:
        forecast = None if document is None else Forecast.model_validate_json(document)
    except ValidationError:  # of another version
        forecast = None
    if forecast is not None and forecast.incident_id == incident.id:
        return forecast
    links = {
        one.path.rpartition("/")[2]: one for one in forecast_links(visit.store.actions(incident.id))
    }
    near = difflib.get_close_matches(number, links, n=3) or [*links][:3]
    message = f"There is no forecast {clean(number)[:40]} of this incident, or not any more."
    whole = Link(text="The incident", path=incident_path(incident.id))
    raise NotFound(message, (whole, *(links[one] for one in near)))


def forecast_path(incident_id: str, forecast_id: str) -> str:
    """Where a forecast is."""
    return PATH.format(incident_id=incident_id, forecast_id=forecast_id)


def begin_forecast(deed: Deed, fields: WhatIf) -> Done:
    """Begin a forecast; its page shows how far it is, and then its answer."""
    incident = incident_named(deed.store, deed.path["incident_id"])
    what_if = fields.values()
    number = _number(deed)
    location = forecast_path(incident.id, number)
    if deed.store.is_request_done(deed.request_id):
        return Done(done=False, text="this form was sent before", location=location)
    if not what_if:
        raise UsageError("nothing to try: give one setting at least")
    if (why := refusal(what_if)) is not None:
        raise UsageError(why)
    key, at = _traffic(deed, incident)
    forecast = Forecast(
        forecast_id=number,
        incident_id=incident.id,
        target=clean(key.text),
        by=clean(deed.person.name),
        at=deed.now,
        traffic_until=at,
        what_if=what_if,
        state="waiting",
    )
    tasks = deed.web.tasks
    with deed.store.one_transaction():
        _require_place(tasks.unfinished(deed.store, "interactive"), forecast.by)
        deed.store.keep_forecast(number, forecast.model_dump_json().encode())
        deed.store.note_action(
            "forecast",
            deed.person.name,
            deed.now,
            incident_id=incident.id,
            subject=number,
            comment=forecast.question,
            via=WEB,
            request_id=deed.request_id,
        )
        tasks.defer(deed.store, what_if_task(key, forecast))
    return Done(done=True, text=f"begun: {forecast.question}", location=location)


def _require_place(unfinished: Sequence[Unfinished], person: str) -> None:
    """Raises UsageError: this person has one that is not answered yet, or too many wait."""
    if any(one.task.arguments["forecast"]["by"] == person for one in unfinished):
        message = "a forecast that you asked for is not answered yet"
        raise UsageError(message, help_text="wait for it: each person has one at a time")
    if len(unfinished) >= _MOST_UNANSWERED:
        message = f"{len(unfinished)} forecasts wait already"
        raise UsageError(message, help_text="ask again in a minute")


def _number(deed: Deed) -> str:
    """In order of time, and the same for a form that is sent twice."""
    digest = hashlib.sha256(f"{deed.path['incident_id']} {deed.request_id}".encode()).hexdigest()
    return f"{deed.at:%Y%m%d%H%M%S}-{digest[:8]}"


def _traffic(deed: Deed, incident: Incident) -> tuple[TargetKey, datetime]:
    """Whose traffic, up to when: now, or of a resolved incident when it was last true.

    Raises UsageError: nothing is stored of what it is about.
    """
    store = deed.store
    at = newest(store)
    if incident.state == "resolved":
        at = incident.last_true_at
    if at is None:
        raise UsageError("no service has written to this database yet")
    if "instance" in incident.target:
        return target_of(incident), at
    members = [
        target_of(one) for one in store.open_members(incident.key) if "instance" in one.target
    ]
    pool = incident.target.get("pool")
    targets = deed.web.plan.assign(stored_targets(store))
    of_pool = [key for key, one in targets.items() if pool is not None and one.pool == pool]
    key = busiest(store, members or of_pool, at)
    if key is None:
        raise UsageError(f"no target of this incident had traffic before {utc_text(at)}")
    return key, at


PAGE = Page(PATH, "What if", "what_if.html", WhatIfView, load)
FORMS = (Form(FORM_PATH, "Ask for a forecast", WhatIf, begin_forecast),)
