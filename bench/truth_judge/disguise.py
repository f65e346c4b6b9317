"""Names and dates must not matter: the same history in disguise gives the same findings.

A disguised recording has its times moved by whole days and minutes, its model and servers renamed,
its file named otherwise, and no ``phase`` or other field besides those that a recording needs.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from truth_judge.commands import Case, pages
from truth_judge.facts import seconds_of

SHIFT_SECONDS = -(211 * 86_400 + 5 * 3600 + 17 * 60)  # minutes stay minutes: they are the grid
_NEEDED = ("t", "dur", "status", "body")
_MODEL = re.compile(r'model_name="([^"]*)"')
_STARTED = re.compile(r"^((?:\S+_created|process_start_time_seconds)(?:\{.*\})?) (\S+)$", re.M)
_OWN_TIMES = ("created_seconds", "process_start_time_seconds")


def disguised(case: Case, folder: Path) -> tuple[Case, dict[str, str]]:
    """The case in disguise in a new folder, and its names (old → new)."""
    folder.mkdir(parents=True)
    into = folder / "capture-0017"
    if case.recording.is_dir():
        names = _compact(case, into)
    else:
        into = into.with_suffix(".bin")
        names = _text(case, into)
    first = case.reference
    moved = None if first is None else (first[0] + SHIFT_SECONDS, first[1] + SHIFT_SECONDS)
    return (
        replace(
            case,
            recording=into,
            start_seconds=case.start_seconds + SHIFT_SECONDS,
            end_seconds=case.end_seconds + SHIFT_SECONDS,
            instances=tuple(names.get(name, name) for name in case.instances),
            episodes=(),
            reference=moved,
        ),
        names,
    )


def _text(case: Case, into: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    opened = gzip.open if case.recording.suffix == ".gz" else open
    with opened(case.recording, "rt") as old, into.open("w") as new:
        for line in old:
            row = {key: value for key, value in json.loads(line).items() if key in _NEEDED}
            row["t"] += SHIFT_SECONDS
            body = row.get("body") or ""
            for model in set(_MODEL.findall(body)) - set(names):
                names[model] = f"m{len(names)}"
            body = _MODEL.sub(lambda found: f'model_name="{names[found[1]]}"', body)
            row["body"] = _STARTED.sub(
                lambda found: f"{found[1]} {float(found[2]) + SHIFT_SECONDS!r}", body
            )
            new.write(json.dumps(row) + "\n")
    return names


def _compact(case: Case, into: Path) -> dict[str, str]:
    into.mkdir()
    manifest = json.loads((case.recording / "recording.json").read_text())
    models = {t["labels"].get("model_name") for t in manifest["targets"]} - {None}
    hosts = sorted({t["instance"] for t in manifest["targets"]})
    names = {model: f"m{number}" for number, model in enumerate(sorted(models))}
    # in the same order: of pages that are due in the same minute, names decide which comes first
    names |= {host: f"srv{number:05}.example:9{number:04}" for number, host in enumerate(hosts)}
    names |= {
        old.split(":")[0]: new.split(":")[0] for old, new in list(names.items()) if ":" in old
    }
    shift = pl.duration(seconds=SHIFT_SECONDS)
    for part in manifest["parts"]:
        rows = pl.read_parquet(case.recording / part["file"])
        text = [name for name, kind in rows.schema.items() if kind == pl.String]
        started = [name for name in _OWN_TIMES if name in rows.columns]
        rows.with_columns(
            pl.col("time") + shift,
            pl.col(text).replace(names),
            pl.col(started) + float(SHIFT_SECONDS),
        ).write_parquet(into / part["file"])
        part["first"] += SHIFT_SECONDS
        part["last"] += SHIFT_SECONDS
    for target in manifest["targets"]:
        target["instance"] = names[target["instance"]]
        target["labels"] = {key: names.get(v, v) for key, v in target["labels"].items()}
    (into / "recording.json").write_text(json.dumps(manifest))
    return names


def same_findings(case: Case, folder: Path) -> dict[str, Any]:
    """Replay it both ways; the findings that only one way has."""
    other, names = disguised(case, folder)
    plain, _ = pages(*case.words(), str(case.recording))
    hidden, _ = pages(*other.words(), str(other.recording))
    ours = [told(page, {}, 0.0) for page in plain]
    theirs = [
        told(page, {new: old for old, new in names.items()}, SHIFT_SECONDS) for page in hidden
    ]
    return {"case": case.name, "findings": len(ours)} | differences(ours, theirs)


def differences(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, Any]:
    """What each has that the other has not."""
    lacking = [one for one in ours if one not in theirs]
    more = [one for one in theirs if one not in ours]
    return {"same": not lacking and not more, "only_first": lacking, "only_second": more}


def told(page: Mapping[str, Any], names: Mapping[str, str], shift_seconds: float) -> str:
    """What a page says, without its names' disguise and its dates': equal pages, equal text.

    Evidence and leaf are those of the page that fires: they are measured again each ten minutes of
    the clock, which the disguise moves.
    """
    change, fires = page["advice"] or {}, page["event"] == "firing"
    said = {
        "event": page["event"],
        "rule": page["rule"],
        "severity": page["severity"],
        "at": round(seconds_of(page["times"]["evaluated_at"]) - shift_seconds, 3),
        "started": round(seconds_of(page["times"]["started_at"]) - shift_seconds, 2),
        "servers": [names.get(name, name) for name in page["servers"]["first"]],
        "leaf": (page["diagnosis"] or {}).get("leaf") if fires else None,
        "change": [change.get("action"), change.get("moves")],
        "evidence": {
            column: _digits(value["value"]) for column, value in page["evidence"].items() if fires
        },
    }
    return json.dumps(said, sort_keys=True)


def _digits(value: Any) -> Any:
    """Nine digits: a sum of times that were moved differs in the last ones."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
