"""Follow-up pages of firing incidents, minute by minute. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from driftwatch.incidents.follow_up import (
    follow_up,
    later,
    says_less,
    what_changed,
    who_changed,
    with_answer,
)
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Finding
from driftwatch.notify.page import EVERY, Page, next_time
from driftwatch.pipeline.question import TargetAdvice


class OpenPages:
    """The pages of open incidents as of a minute; minutes come in order.

    Args:
        before: open incidents before the first minute.
        ended: incident id → when it resolves.
        simulations: at most so many questions a minute.
    """

    def __init__(
        self, before: Mapping[str, Incident], ended: Mapping[str, datetime], simulations: int
    ) -> None:
        self.advices: list[TargetAdvice] = []
        # incident id → its page now, if a minute made or changed it
        self.latest: dict[str, Page] = {}
        self._ended = ended
        self._simulations = simulations
        self._used = Counter[datetime]()
        self._open = {
            one.id: one for one in before.values() if one.state == "firing" and one.page is not None
        }
        self._since: dict[str, datetime] = {}  # when its page was made, if known

    def firing(self, at: datetime) -> list[Incident]:
        """Incidents whose page was out before the minute and that have not ended by then."""
        return [one for one in self._open.values() if not self._ended.get(one.id, at) < at]

    def opened(
        self,
        paged: Sequence[Transition],
        findings: Mapping[str, Finding],
        answers: Sequence[TargetAdvice],
    ) -> list[Transition]:
        """Transitions that fired, and follow-ups for incidents that grew."""
        self._note(answers)
        sent = []
        for one in paged:
            incident = one.incident
            if one.event == "firing" or (old := self._open.get(incident.id)) is None:
                self._keep(incident, one.at)
                sent.append(one)
                continue
            if old.page is None or incident.page is None:
                continue
            page, changed = _grown(old.page, incident.page, findings.get(incident.id))
            self._keep(replace(incident, page=page), one.at)
            page = follow_up(page, "updated", one.at, changed)
            sent.append(replace(one, incident=replace(incident, page=page)))
        return sent

    def waiting(self, at: datetime) -> list[Transition]:
        """Findings that ask again in a minute of the grid: pages first, then the longest wait."""
        if not self._simulations or next_time(at - EVERY) != at:
            return []
        asking = [
            one
            for one in self._open.values()
            if _asked_again_at(one) is not None
            and self._since.get(one.id, at - EVERY) < at
            and not self._ended.get(one.id, at + EVERY) <= at
        ]
        asking.sort(key=lambda i: (i.severity != "page", str(_asked_again_at(i)), i.key))
        room = max(0, self._simulations - self._used[at])
        return [Transition(one, "updated", at) for one in asking[:room]]

    def asked_again(
        self,
        waiting: Sequence[Transition],
        at: datetime,
        findings: Mapping[str, Finding],
        answers: Sequence[TargetAdvice],
    ) -> list[Transition]:
        """Follow-ups with the answers that pages waited for."""
        self._note(answers)
        by_id = {answer.incident_id for answer in answers}
        sent = []
        for one in waiting:
            incident = one.incident
            finding = findings.get(incident.id)
            if finding is not None and incident.id not in by_id and finding.answered_by is None:
                finding = None
            if incident.page is None:
                continue
            page, changed = _updated(incident.page, finding, at)
            self._keep(replace(incident, page=page), self._since.get(incident.id, at))
            if changed is not None:
                page = follow_up(page, "updated", at, changed)
                sent.append(Transition(replace(incident, page=page), "updated", at))
        return sent

    def _keep(self, incident: Incident, since: datetime) -> None:
        if incident.page is None:
            return
        self._open[incident.id] = incident
        self._since[incident.id] = since
        self.latest[incident.id] = incident.page

    def _note(self, answers: Sequence[TargetAdvice]) -> None:
        self.advices += answers
        self._used.update(answer.at for answer in answers)


def _asked_again_at(incident: Incident) -> datetime | None:
    return None if incident.page is None else incident.page.asked_again_at


def _updated(page: Page, finding: Finding | None, at: datetime) -> tuple[Page, str | None]:
    """The page after an answer, None without one; and the change that its receivers get.

    Receivers get only one more answer. So an answer that more minutes may change is held back:
    "no knob helps" from the first minutes of a drift would use it up.
    """
    advice = None if finding is None else finding.advice
    stays = advice is not None and advice.action not in ("insufficient", "none")
    if finding is None or (finding.asked_again and not stays):
        return later(page, next_time(at)), None
    changed = what_changed(page.advice, advice)
    if says_less(page.advice, advice):
        return later(page, None), changed
    return with_answer(page, finding, at), changed


def _grown(old: Page, new: Page, finding: Finding | None) -> tuple[Page, str]:
    """The new page of an incident that grew, and its differences from the old one.

    The old page's answer stays if the new page has none.
    """
    before, advice = old.advice, None if finding is None else finding.advice
    changed = who_changed(old, new)
    has_answer = before is not None and before.action != "insufficient"
    lacks_one = advice is None or advice.action == "insufficient" or says_less(before, advice)
    if has_answer and lacks_one:
        return later(
            new.model_copy(update={"advice": before}), None
        ), f"{changed}; the advice stands"
    words = what_changed(before, advice)
    return new, changed if words.startswith("nothing") else f"{changed}; {words}"
