"""What was replayed for pages, as rows of the store."""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.pipeline.replaying import Replayed
from driftwatch.store.advised import KeptAdvice, KeptCalibration, advice_id


def kept_advices(answers: Sequence[Replayed]) -> list[KeptAdvice]:
    """Each answer as :func:`driftwatch.recommend.documents.advice_document` writes it."""
    if not answers:
        return []
    from driftwatch.recommend.documents import advice_document

    return [
        KeptAdvice(
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


def kept_calibrations(answers: Sequence[Replayed]) -> list[KeptCalibration]:
    """The laws of those that came so far; of two of one target and minute the later one."""
    fitted = [answer for answer in answers if answer.advice.calibration is not None]
    if not fitted:
        return []
    from driftwatch.recommend.calibration.fits import to_document

    return [
        KeptCalibration(
            answer.target.key.instance, answer.target.key.engine, answer.at, to_document(found)
        )
        for answer in fitted
        if (found := answer.advice.calibration) is not None
    ]
