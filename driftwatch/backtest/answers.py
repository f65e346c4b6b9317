"""Answers of simulations, kept: a question of a target and a minute is asked once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import orjson

import driftwatch
from driftwatch.errors import DocumentError, UsageError
from driftwatch.model import Reason, Recommendation
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, TargetAdvice, target_advice
from driftwatch.recommend.advice import Advice, advice_codec

# Rooms whose code makes an answer of minutes.
_ROOMS = ("recommend", "simulate")
NOT_SIMULATED = "not_simulated"
_Kind = Literal["advise", "assess"]


class Answers:
    """Asked like :func:`driftwatch.pipeline.question.target_advice`.

    Args:
        folder: of the kept evidence that the questions are about; None = nothing is kept.
        whole: a moment → the same with the whole evidence row of its minute.
    """

    def __init__(self, folder: Path | None, whole: Callable[[Moment], Moment]) -> None:
        self._path = None if folder is None else folder / f"answers-{_code()}.jsonl"
        self._whole = whole
        self._answer_of: dict[tuple[str, ...], tuple[Advice, bool]] = dict(self._read_lines())
        self.simulations = 0  # how many were simulated, not read

    def __call__(
        self,
        moment: Moment,
        plan: Plan,
        *,
        leaf: str | None = None,
        ask: _Kind = "advise",
        incident_id: str | None = None,
    ) -> TargetAdvice:
        """The answer that was kept, else the simulation's."""
        question = (*moment.target.key, moment.at.isoformat(), ask, leaf or "")
        if question not in self._answer_of:
            answer = target_advice(self._whole(moment), plan, leaf=leaf, ask=ask)
            self.simulations += 1
            self._keep(question, _as_kept(answer.advice), answer.failed is not None)
        advice, failed = self._answer_of[question]
        why = advice.recommendation.reason.text if failed else None
        return TargetAdvice(moment.target, moment.at, advice, incident_id, why)

    def without_advice(self, moment: Moment, plan: Plan, **question: Any) -> TargetAdvice:
        """Capacity alone is asked for: what a change would bring is not simulated."""
        if question.get("ask") == "assess":
            return self(moment, plan, **question)
        nothing = Recommendation("insufficient", Reason(NOT_SIMULATED, "not simulated"))
        advice = Advice(moment.at, nothing)
        return TargetAdvice(moment.target, moment.at, advice, question.get("incident_id"))

    def _keep(self, question: tuple[str, ...], advice: Advice, failed: bool) -> None:
        self._answer_of[question] = advice, failed
        if self._path is None:
            return
        line = orjson.dumps([*question, failed, advice_codec.document(advice)]) + b"\n"
        try:
            with self._path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror or error}") from error

    def _read_lines(self) -> Iterator[tuple[tuple[str, ...], tuple[Advice, bool]]]:
        if self._path is None or not self._path.exists():
            return
        for line in self._path.read_bytes().splitlines():
            try:
                *question, failed, document = orjson.loads(line)
                yield tuple(question), (advice_codec.value(document), failed)
            except (orjson.JSONDecodeError, DocumentError, ValueError, TypeError):
                continue  # the end of a run that was killed: asked again


def _as_kept(advice: Advice) -> Advice:
    """What pages and rules read of an answer."""
    return replace(advice, calibration=None, candidates=(), what_ifs=(), advised=None, notes=())


@cache
def _code() -> str:
    every = hashlib.sha256()
    package = Path(driftwatch.__file__).parent
    for room in _ROOMS:
        for path in sorted((package / room).rglob("*")):
            if path.suffix in (".py", ".yaml", ".json"):
                every.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return every.hexdigest()[:12]
