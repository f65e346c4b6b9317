"""A value that NVML answers and that cannot be is NULL with its reason, as it is of DCGM."""

from __future__ import annotations

import pytest

from driftwatch.collect.gpus import GPU_FIELDS, GpuField
from driftwatch.collect.nvml.fields import Reading, take


@pytest.mark.parametrize("field", GPU_FIELDS, ids=lambda field: field.column)
def test_beyond_the_bound_is_no_value(field: GpuField) -> None:
    reading = Reading()
    take(reading, field.column, field.most)
    assert reading.values == {field.column: field.most}
    reading = Reading()
    take(reading, field.column, field.most * 1.02)
    assert reading.values == {}
    words = "is no share" if field.column.endswith("_ratio") else f"is {field.why_most}"
    assert reading.reasons[field.column].endswith(words)
