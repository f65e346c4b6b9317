"""A click on a Slack message → what is written down, once, and an answer to who clicked.

The outbox tells every receiver of an acknowledgement, this one too, within a second or two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Counter

from driftwatch.errors import DeliveryError, StoreError, UsageError
from driftwatch.incidents.silence import silencing
from driftwatch.notify.numbers import clean, cut, moment
from driftwatch.receivers.slack import app_of
from driftwatch.receivers.slack_api import SlackApi
from driftwatch.receivers.slack_blocks import harmless
from driftwatch.receivers.slack_thread import ACKNOWLEDGE, NOT_USEFUL, SILENCE, USEFUL
from driftwatch.settings.receivers.slack import SlackReceiver
from driftwatch.store.store import Store

# as old as Slack lets a signed request be
STALE_AFTER = timedelta(minutes=5)
SILENCED_FOR = timedelta(hours=2)
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
    """Handles the clicks of one app, one at a time.

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
        result, reason, answer = "refused", "", self._refusal(settings, click)
        try:
            if self._store.is_request_done(click.request_id):
                result, answer = "again", None
            elif answer is None:
                answer = self._act(api, receiver, click)
                result = "done"
        except UsageError as error:
            answer = reason = error.message
        except StoreError as error:
            result, reason = "failed", error.message
            answer = f"driftwatch could not do it ({error.message}); the commands work"
        self._counts.labels(receiver, result).inc()
        self._log.info(
            f"click {result}",
            receiver=receiver,
            action=click.action,
            user=click.user,
            id=clean(click.incident_id[:12]),
            **({"reason": reason} if reason else {}),
        )
        if answer:
            self._answer(api, click, answer)

    def _refusal(self, settings: SlackReceiver, click: Click) -> str | None:
        if abs(self._now() - click.at) > STALE_AFTER:
            return "this click is older than 5 minutes: click again"
        if settings.users and click.user not in settings.users:
            return "you are not among those who may use these buttons"
        return None

    def _act(self, api: SlackApi, receiver: str, click: Click) -> str | None:
        """Do it; returns what who clicked is told, None where a message shows it."""
        by, now, store = _name(api, click), self._now(), self._store
        via = {"via": receiver, "request_id": click.request_id}
        if click.action == ACKNOWLEDGE:
            taken = store.acknowledge(click.incident_id, by, now, **via)
            if taken.is_new or taken.action is not None:
                return None
            at = moment(taken.incident.acknowledged_at or now, now.date())
            return f"{taken.incident.acknowledged_by} took it at {at}"
        if click.action in _MARKS:
            mark = _MARKS[click.action]
            with store.one_transaction():
                id_ = store.mark(click.incident_id, mark, by=by, at=now).incident_id
                store.note_action("mark", by, now, incident_id=id_, subject=mark, **via)
            return f"marked {mark}; driftwatch mark {id_} --undo takes it back"
        incident = store.incident(click.incident_id)
        if incident.state == "resolved":
            return f"incident {incident.id} is already resolved: there is nothing to silence"
        # of the click's own time: the same click is the same silence
        matchers, at, until = silencing(incident), click.at, click.at + SILENCED_FOR
        with store.one_transaction():
            one = store.add_silence(matchers, until=until, by=by, at=at, comment="Slack button")
            store.note_action("silence", by, at, incident_id=incident.id, subject=one.id, **via)
        return _tell_thread(api, click, by, " ".join(matcher.text for matcher in matchers))

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


def _tell_thread(api: SlackApi, click: Click, by: str, what: str) -> str | None:
    """Say in the thread what is silenced; where that fails, what who clicked is told."""
    end = moment(click.at + SILENCED_FOR, click.at.date())
    text = f"*Silenced* by {harmless(by)} until {end}: {harmless(clean(what))}"
    try:
        place = {"channel": click.channel, "thread_ts": click.ts}
        api.call("chat.postMessage", {**place, "text": text})
    except DeliveryError:
        return f"silenced until {end}"
    return None


def _name(api: SlackApi, click: Click) -> str:
    """The person's own name, else the user name."""
    name = click.user_name
    with suppress(DeliveryError, KeyError, TypeError, AttributeError):
        profile = api.ask("users.info", user=click.user)["user"]["profile"]
        name = profile.get("display_name") or profile.get("real_name") or name
    return cut(clean(str(name)), 60)
