"""The parser held against prometheus_client's own, and against itself with an empty cache."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.pages import PageParser
from driftwatch.collect.registry import BY_COLUMN, COUNTERS, GAUGES, HISTOGRAMS

T0 = datetime(2026, 1, 2, tzinfo=UTC)

# any text a label may hold; "\n" is written escaped, other line ends must survive as they are
label_text = st.text(
    st.characters(codec="utf-8", exclude_characters="\r"), max_size=12
)  # "\r\n" would be read as a line end
numbers = st.floats(min_value=0, max_value=2**53, allow_nan=False)
counts = st.integers(min_value=0, max_value=2**53)
edges = st.lists(
    st.floats(min_value=0.001, max_value=1e6, allow_nan=False), max_size=6, unique=True
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def sample(name: str, labels: dict[str, str], value: float | str) -> str:
    inside = ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items())
    return f"{name}{{{inside}}} {value}" if labels else f"{name} {value}"


@st.composite
def pages(draw: st.DrawFn) -> str:
    """A page with any subset of the registry, on one to three engines, its lines shuffled."""
    lines: list[str] = []
    engines = draw(st.lists(st.sampled_from(["0", "1", "12"]), min_size=1, unique=True))
    model = draw(label_text.filter(bool))
    metrics = draw(st.lists(st.sampled_from(sorted(BY_COLUMN)), min_size=1, unique=True))
    for column in metrics:
        metric = BY_COLUMN[column]
        if metric.type == "info" or metric.labels or metric.column == "finished_requests_total":
            continue
        for engine in engines:
            labels = {"model_name": model, "engine": engine}
            if not metric.per_engine:
                labels = {}
            if draw(st.booleans()):
                labels = dict(reversed(labels.items()))
            if metric.type != "histogram":
                value = draw(st.floats(min_value=0, max_value=metric.largest, allow_nan=False))
                lines.append(sample(metric.wire_name, labels, repr(value)))
            else:
                les = [*sorted(draw(edges)), math.inf]
                cumulative = sorted(draw(st.lists(counts, min_size=len(les), max_size=len(les))))
                for le, value in zip(les, cumulative, strict=True):
                    named = "+Inf" if le == math.inf else repr(le)
                    lines.append(
                        sample(f"{metric.wire_name}_bucket", {**labels, "le": named}, value)
                    )
                lines.append(sample(f"{metric.wire_name}_sum", labels, repr(draw(numbers))))
                lines.append(sample(f"{metric.wire_name}_count", labels, cumulative[-1]))
            if not metric.per_engine:
                break
    for reason, value in draw(
        st.dictionaries(label_text | st.just("abort"), counts, max_size=4)
    ).items():
        labels = {"engine": engines[0], "model_name": model, "finished_reason": reason}
        lines.append(sample("vllm:request_success_total", labels, value))
    for i, text in enumerate(draw(st.lists(label_text, max_size=3))):
        lines.append(sample("http_requests_total", {"handler": text, "n": str(i)}, i))
        lines.append(f"# HELP other {text!r}")
    lines = draw(st.permutations(lines))
    if draw(st.booleans()):
        lines = [f"{x} 1395066363000" if not x.startswith("#") else x for x in lines]
    return "\n".join(["up 1", *lines, ""])


def expected(page: str) -> dict[tuple[str, str], Any]:
    """(engine, column) → value, from prometheus_client's reading of the whole page."""
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    found: dict[tuple[str, str], Any] = {}
    engines = sorted(
        {
            s.labels["engine"]
            for s in samples
            if s.name.startswith("vllm:") and s.labels.get("engine")
        },
        key=int,
    ) or ["0"]
    for engine in engines:
        for column in (*GAUGES, *COUNTERS, *HISTOGRAMS):
            metric = BY_COLUMN[column]
            homes = [engine] if metric.per_engine else [None]
            if not metric.per_engine and metric.type == "counter" and engine != engines[0]:
                continue
            ours = [
                s
                for s in samples
                if s.labels.get("engine") in homes
                and all(s.labels.get(k) == v for k, v in metric.labels)
            ]
            if metric.type != "histogram":
                values = [s.value for s in ours if s.name == metric.wire_name]
                if values:
                    found[engine, column] = float(sum(values))
                continue
            buckets = sorted(
                (float(s.labels["le"]), float(s.value))
                for s in ours
                if s.name == f"{metric.wire_name}_bucket"
            )
            if buckets:
                if metric.buckets:
                    found[engine, f"{column}_edges"] = [le for le, _ in buckets]
                    found[engine, f"{column}_buckets"] = [value for _, value in buckets]
                for part in ("sum", "count"):
                    (value,) = (s.value for s in ours if s.name == f"{metric.wire_name}_{part}")
                    found[engine, f"{column}_{part}"] = float(value)
    return found


FACTS = ("instance", "engine", "time", "ok", "reason", "model_name", "several_api_servers")


@settings(max_examples=25, deadline=None)
@given(st.lists(pages(), min_size=1, max_size=3))
def test_same_numbers_as_the_maintained_parser(texts: list[str]) -> None:
    parser = PageParser(max_series=20)  # small, so that series are dropped too
    for text in [*texts, *texts]:
        parsed = parser.parse("h:1", T0, text.encode())
        if not any(line.startswith("vllm:") for line in text.split("\n")):
            assert {row["ok"] for row in parsed.scrapes.to_dicts()} == {False}
            continue
        assert parsed.problems == ()
        ours = {
            (row["engine"], column): value
            for row in parsed.scrapes.to_dicts()
            for column, value in row.items()
            if value is not None and column not in FACTS
        }
        theirs = expected(text)
        if {column for _, column in theirs} == {"rejected_requests_total"}:
            continue  # it has no engine label: without another series it is of no engine
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            if isinstance(value, float):
                assert math.isclose(ours[key], value, rel_tol=1e-12), key
            else:
                assert ours[key] == value, key


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_row_and_never_an_exception(body: bytes) -> None:
    rows = PageParser().parse("h:1", T0, body).scrapes.to_dicts()
    assert len(rows) >= 1
    for row in rows:
        assert row["ok"] or row["reason"]
