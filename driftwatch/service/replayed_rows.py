"""What was replayed for pages, as rows of the store."""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.pipeline.question import TargetAdvice
from driftwatch.store.advice import AdviceRow, advice_id


def kept_advices(answers: Sequence[TargetAdvice]) -> list[AdviceRow]:
    """Each answer as :func:`driftwatch.recommend.advice.advice_document` writes it."""
    if not answers:
        return []
    from driftwatch.recommend.advice import advice_document

    return [
        AdviceRow(
            id=advice_id(answer.target.key, answer.at, answer.incident_id),
            instance=answer.target.key.instance,
            engine=answer.target.key.engine,
            pool=answer.target.pool or "default",
            at=answer.at,
            document=advice_document(answer.advice),
            incident_id=answer.incident_id,
        )
        for answer in answers
    ]
