"""Who may use the buttons of a Slack message: named people, else the members of its channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftwatch.receivers.slack_api import SlackApi
from driftwatch.receivers.slack_errors import SlackRefusal

_PAGE, _MOST_PAGES = "200", 25


@dataclass(frozen=True, slots=True)
class Authority:
    """Says whether somebody may click."""

    api: SlackApi  # with the bot token
    users: Sequence[str]  # user ids that may
    user_groups: Sequence[str]  # ids of user groups whose members may; none of both: the channel's

    def refusal(self, user: str, channel: str) -> str | None:
        """Why not, None = may.

        Raises DeliveryError: Slack could not be asked.
        """
        if user in self.users:
            return None
        try:
            if self.users or self.user_groups:
                groups = (self._group(one) for one in self.user_groups)
                allowed = any(user in group for group in groups)
                return None if allowed else "you are not among those who may use these buttons"
            allowed = any(user in page for page in self._members(channel))
        except SlackRefusal as error:
            if error.code != "missing_scope":
                raise
            return f"driftwatch cannot check who may click: {error.message.partition('; ')[2]}"
        return None if allowed else "only members of this channel may use these buttons"

    def _group(self, group: str) -> list[str]:
        answer = self.api.ask("usergroups.users.list", usergroup=group)
        return [str(one) for one in answer.get("users") or ()]

    def _members(self, channel: str) -> Iterator[list[str]]:
        cursor = ""
        for _ in range(_MOST_PAGES):
            rest = {"cursor": cursor} if cursor else {}
            answer = self.api.ask("conversations.members", channel=channel, limit=_PAGE, **rest)
            yield [str(one) for one in answer.get("members") or ()]
            cursor = str((answer.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                return
