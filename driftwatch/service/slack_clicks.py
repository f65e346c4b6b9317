"""A click on a Slack message → what is written down, once, and an answer to who clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Counter

from driftwatch.errors import DeliveryError, StoreError, UsageError
from driftwatch.incidents.actions import KeptAction
from driftwatch.incidents.silence import silencing
from driftwatch.notify.numbers import clean, cut, moment
from driftwatch.receivers.slack import app_of
from driftwatch.receivers.slack_api import SlackApi
from driftwatch.receivers.slack_text import harmless
from driftwatch.receivers.slack_thread import (
    ACKNOWLEDGE,
    NOT_USEFUL,
    SILENCE,
    USEFUL,
    Taker,
    standing,
)
from driftwatch.settings.receivers.slack import SlackReceiver
from driftwatch.store.store import Store

# as old as Slack lets a signed request be
STALE_AFTER = timedelta(minutes=5)
SILENCED_FOR = timedelta(hours=2)
_DONE_BEFORE = "this click was done before"
_MARKS = {USEFUL: "useful", NOT_USEFUL: "not useful"}


@dataclass(frozen=True, slots=True)
class Click:
    """One click, in driftwatch's words."""

    request_id: str  # Slack's own names for it: the same for the same click
    user: str  # user id
    user_name: str  # chosen by the user
    action: str
    incident_id: str
    channel: str
    ts: str  # of the message
    at: datetime
    response_url: str


def click_of(payload: Mapping[str, Any]) -> Click | None:
    """A click on a button that acts; None for links and for what is not a click of ours.

    ``payload``: as docs.slack.dev/reference/interaction-payloads/block_actions-payload has it.
    """
    try:
        action, container, user = payload["actions"][0], payload["container"], payload["user"]
        texts = (action["action_id"], action["value"], action["action_ts"], user["id"])
        place = (container["channel_id"], container["message_ts"])
        at = datetime.fromtimestamp(float(action["action_ts"]), UTC)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, OSError):
        return None
    if payload.get("type") != "block_actions" or not all(
        isinstance(text, str) for text in (*texts, *place)
    ):
        return None
    if action["action_id"] not in (ACKNOWLEDGE, SILENCE, USEFUL, NOT_USEFUL):
        return None
    return Click(
        request_id=" ".join(("slack", *place, user["id"], action["action_id"], texts[2])),
        user=user["id"],
        user_name=str(user.get("name") or user.get("username") or user["id"]),
        action=action["action_id"],
        incident_id=action["value"],
        channel=place[0],
        ts=place[1],
        at=at,
        response_url=str(payload.get("response_url") or ""),
    )


class SlackClicks:
    """Handles the clicks of one app.

    Args:
        app: receiver name → its settings.
        counts: labels ``receiver`` and ``result`` (done, again, refused, failed).
    """

    def __init__(
        self,
        app: Mapping[str, SlackReceiver],
        store: Store,
        now: Callable[[], datetime],
        counts: Counter,
    ) -> None:
        self._channels = {one.channel: (name, one) for name, one in app.items()}
        self._store, self._now, self._counts = store, now, counts
        self._log = structlog.get_logger()

    def handle(self, payload: dict[str, Any]) -> None:
        """Do what a click asks for, and answer who clicked.

        Raises ConfigError: the bot token cannot be read; nothing is done then.
        """
        click = click_of(payload)
        if click is None:
            return
        receiver, settings = self._channels.get(click.channel, (None, None))
        if receiver is None or settings is None:
            self._log.warning("click refused", reason="no receiver has this channel any more")
            return
        api = app_of(receiver, settings)
        result, reason = "refused", ""
        answer: str | None
        try:
            if self._store.is_request_done(click.request_id):
                self._tell(receiver, click, "again")
                return
            answer = self._refusal(settings, click)
            if answer is None:
                answer = self._act(api, receiver, click)
                result = "done"
        except UsageError as error:
            answer = reason = error.message
        except (StoreError, DeliveryError) as error:
            result, reason = "failed", error.message
            answer = f"driftwatch could not do it ({error.message}); the commands work"
        self._tell(receiver, click, result, reason)
        if answer:
            self._answer(api, click, answer)

    def _refusal(self, settings: SlackReceiver, click: Click) -> str | None:
        if abs(self._now() - click.at) > STALE_AFTER:
            return "this click is older than 5 minutes: click again"
        if settings.users and click.user not in settings.users:
            return "you are not among those who may use these buttons"
        return None

    def _act(self, api: SlackApi, receiver: str, click: Click) -> str | None:
        """Do it; returns what who clicked is told, None where the message shows it."""
        by, now = _name(api, click), self._now()
        if click.action == ACKNOWLEDGE:
            return self._acknowledge(api, receiver, click, by, now)
        if click.action == SILENCE:
            return self._silence(api, receiver, click, by)
        return self._mark(receiver, click, by, now)

    def _mark(self, receiver: str, click: Click, by: str, now: datetime) -> str:
        mark = _MARKS[click.action]
        with self._store.one_transaction():
            if self._store.is_request_done(click.request_id):
                return _DONE_BEFORE
            done = self._store.mark(click.incident_id, mark, by=by, at=now)
            self._keep("mark", receiver, click, by, now, done.incident_id, mark)
        undo = f"driftwatch mark {done.incident_id} --undo"
        return f"marked {mark}; {undo} takes it back"

    def _keep(
        self,
        action: KeptAction,
        receiver: str,
        click: Click,
        by: str,
        now: datetime,
        incident_id: str,
        subject: str,
    ) -> None:
        self._store.note_action(
            action,
            by,
            now,
            incident_id=incident_id,
            subject=subject,
            via=receiver,
            request_id=click.request_id,
        )

    def _acknowledge(
        self, api: SlackApi, receiver: str, click: Click, by: str, now: datetime
    ) -> str | None:
        result = self._store.acknowledge(
            click.incident_id, by, now, via=receiver, request_id=click.request_id
        )
        incident = result.incident
        at = incident.acknowledged_at or now
        if not result.is_new and result.action is None:
            return f"{incident.acknowledged_by} took it at {moment(at, now.date())}"
        taker = Taker(incident.acknowledged_by or by, at)
        document = standing(incident.page or {}, taker, clicks=True, value=incident.id)
        try:
            # at once; the outbox tells every receiver, this one too
            where = {"channel": click.channel, "ts": click.ts}
            edited = {name: document[name] for name in ("text", "blocks")}
            api.call("chat.update", {**where, **edited})
            now_is = self._store.incident(incident.id)
            if now_is.state == "resolved":
                # its resolve may have been sent while this was on its way: that is the last word
                over = standing(now_is.page or {}, None, clicks=True, value=incident.id)
                api.call("chat.update", {**where, **{n: over[n] for n in ("text", "blocks")}})
        except DeliveryError:
            return f"{taker.by} took it; the message changes in a moment"
        return None

    def _silence(self, api: SlackApi, receiver: str, click: Click, by: str) -> str | None:
        incident = self._store.incident(click.incident_id)
        if incident.state == "resolved":
            return f"incident {incident.id} is already resolved: there is nothing to silence"
        matchers, until = silencing(incident), click.at + SILENCED_FOR
        # of the click's own time: the same click is the same silence
        with self._store.one_transaction():
            if self._store.is_request_done(click.request_id):
                return _DONE_BEFORE
            silence = self._store.add_silence(
                matchers, until=until, by=by, at=click.at, comment="Slack button"
            )
            self._keep("silence", receiver, click, by, click.at, incident.id, silence.id)
        what = " ".join(matcher.text for matcher in matchers)
        end = moment(silence.until, click.at.date())
        text = f"*Silenced* by {harmless(by)} until {end}: {harmless(clean(what))}"
        try:
            place = {"channel": click.channel, "thread_ts": click.ts}
            api.call("chat.postMessage", {**place, "text": text})
        except DeliveryError:
            return f"silenced until {end}"
        return None

    def _answer(self, api: SlackApi, click: Click, text: str) -> None:
        document = {
            "response_type": "ephemeral",
            "replace_original": False,
            "text": harmless(clean(text)),
        }
        try:
            api.outside(click.response_url, document)
        except DeliveryError as error:
            self._log.warning("click not answered", reason=error.message)

    def _tell(self, receiver: str, click: Click, result: str, reason: str = "") -> None:
        self._counts.labels(receiver, result).inc()
        self._log.info(
            f"click {result}",
            receiver=receiver,
            action=click.action,
            user=click.user,
            id=clean(click.incident_id[:12]),
            **({"reason": reason} if reason else {}),
        )


def _name(api: SlackApi, click: Click) -> str:
    """The person's own name, else the user name."""
    name = click.user_name
    with suppress(DeliveryError, KeyError, TypeError, AttributeError):
        profile = api.ask("users.info", user=click.user)["user"]["profile"]
        name = profile.get("display_name") or profile.get("real_name") or name
    return cut(clean(str(name)), 60)
