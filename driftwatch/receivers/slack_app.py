"""An incident's one message through a Slack app: posted, edited in place, with a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slack_sdk.models.blocks import SectionBlock
from slack_sdk.models.metadata import Metadata

from driftwatch.errors import DeliveryError
from driftwatch.notify.page_values import instant
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.receivers.slack_api import MESSAGE_LOST, THREAD_LOST, SlackApi, SlackRefusal
from driftwatch.receivers.slack_blocks import mrkdwn, report_blocks
from driftwatch.receivers.slack_thread import Note, note_of, standing, taker_after

METADATA = "driftwatch_incident"
_CLOCKS_APART = timedelta(minutes=10)
_RECENT_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SlackAppSender:
    """Posts and edits messages in one channel."""

    api: SlackApi  # with the bot token
    channel: str  # its ID
    clicks: bool  # a Socket Mode connection brings clicks back

    @property
    def name(self) -> str:
        """The receiver's."""
        return self.api.name

    def send(self, message: Message) -> Conversation | None:
        """Post, or edit what stands there and tell the thread; retries are the outbox's business.

        Returns channel and time stamp of the incident's message, and who took it.

        Raises DeliveryError: Slack did not take it. What was done of it is done again by the next
        attempt without harm: an edit says the same twice, a note in a thread may stand twice.
        """
        if message.kind != "incident":
            self._post(report_blocks(message.payload))
            return None
        if "ts" not in (message.conversation or {}):
            # of the kind that a receiver of this name had before: Slack has no message of it
            message = replace(message, conversation=None)
        page, taker = message.payload, taker_after(message)
        before = message.conversation
        document = standing(
            page, taker, clicks=self.clicks, value=message.subject, is_first=before is None
        )
        where = None if before is None else self._edit(before, document)
        if where is None:
            where = self._existing(message, document) or self._first(message, document)
        elif (note := note_of(message)) is not None:
            self._reply(where, note)
        return {**where, **({} if taker is None else taker.stored())}

    def _first(self, message: Message, document: Mapping[str, Any]) -> dict[str, str]:
        return self._post({**document, "metadata": _metadata(message, self.name)})

    def _post(self, document: Mapping[str, Any]) -> dict[str, str]:
        answer = self.api.call("chat.postMessage", {"channel": self.channel, **document})
        channel, ts = answer.get("channel"), answer.get("ts")
        if not isinstance(ts, str):
            text = f"{self.name}: Slack's answer names no message"
            raise DeliveryError(text, permanent=True)
        return {"channel": str(channel or self.channel), "ts": ts}

    def _edit(self, before: Conversation, document: Mapping[str, Any]) -> dict[str, str] | None:
        """The message after the edit; None where it is gone."""
        where = {"channel": before["channel"], "ts": before["ts"]}
        edited = {name: document[name] for name in ("text", "blocks")}
        try:
            self.api.call("chat.update", {**where, **edited})
        except SlackRefusal as error:
            moved = error.code == "channel_not_found" and where["channel"] != self.channel
            if error.code not in MESSAGE_LOST and not moved:
                raise
            return None
        return where

    def _reply(self, where: Mapping[str, str], note: Note) -> None:
        reply = {
            "channel": where["channel"],
            "thread_ts": where["ts"],
            "text": note.text,
            "blocks": [SectionBlock(text=mrkdwn(note.text)).to_dict()],
            "unfurl_links": False,
            "unfurl_media": False,
            **({"reply_broadcast": True} if note.broadcast else {}),
        }
        try:
            self.api.call("chat.postMessage", reply)
        except SlackRefusal as error:
            # the message was edited a moment ago: what it says is what counts
            if error.code not in THREAD_LOST:
                raise

    def _existing(self, message: Message, document: Mapping[str, Any]) -> dict[str, str] | None:
        """A message that an earlier attempt posted without driftwatch hearing of it, edited.

        chat.postMessage has no documented key that makes it happen once: where the app may read
        the channel's history, the message is found again by its metadata.
        """
        if message.conversation is not None:
            return None
        began = instant(message.payload, "firing_at") or datetime.now(UTC)
        try:
            answer = self.api.ask(
                "conversations.history",
                channel=self.channel,
                oldest=f"{(began - _CLOCKS_APART).timestamp():.6f}",
                limit=str(_RECENT_MESSAGES),
                include_all_metadata="true",
            )
        except DeliveryError:
            return None
        wanted = _metadata(message, self.name)
        for one in answer.get("messages") or ():
            if isinstance(one, dict) and one.get("metadata") == wanted and one.get("ts"):
                return self._edit({"channel": self.channel, "ts": str(one["ts"])}, document)
        return None


def _metadata(message: Message, receiver: str) -> dict[str, Any]:
    """What names the incident's message for driftwatch, unseen by people."""
    about = {"incident": message.subject, "receiver": receiver}
    return dict(Metadata(event_type=METADATA, event_payload=about).to_dict())
