"""What driftwatch's findings are worth: replayed truth, through the public commands only.

    python bench/truth.py --seed N [--set quick|smoke|standard|full] [--out FILE.json] [--jobs 2]
                          [--servegen DIR] [--only NAME | --only NAME-SEED]... [--show false]
                          [--page docs/truth.md --date YYYY-MM-DD] [--beside 0.11=TREE]...
                          [--keep DIR]

A set is the recorded runs of real servers, the shipped scenarios, and mixed fleets, with faults and
without. docs/truth.md says what each figure means. Everything is drawn from the seed; any seed
will do. `smoke` takes minutes, `standard` a quarter of an hour, `full` hours.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from truth_judge import disguise, fleets, whatif
from truth_judge.facts import MONTH_SECONDS
from truth_judge.figures import confusion, detection, false_alarms, unexpected
from truth_judge.goals import goals
from truth_judge.healthy import summary as healthy_summary
from truth_judge.options import draw_name, drawn, options_of, vllm_runs
from truth_judge.recordings import recorded_cases
from truth_judge.report import into_page, sections
from truth_judge.running import Ran, run_draw, run_recorded
from truth_judge.sets import SIZES, Draw, derived
from truth_judge.shown import shown

HERE = Path(__file__).resolve().parent
HIDDEN = "rate-surge"  # the scenario that is replayed in disguise as well


def main(argv: Sequence[str] | None = None) -> int:
    given = options_of(argv, __doc__ or "")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="driftwatch-truth-") as scratch:
        ran = _everything(given, Path(scratch))
        if given.show:
            print("\n".join(shown(given.show, [one.stretch for one in ran])))
        figures = _figures(ran, given) | {"disguise": _disguised(given, Path(scratch))}
    figures["cost"] = _cost(ran, time.perf_counter() - began)
    if given.out is not None:
        given.out.write_text(json.dumps(figures, indent=1) + "\n")
    print("\n".join(sections(figures)))
    if given.page is not None:
        given.page.write_text(into_page(given.page.read_text(), figures))
    return 0


def _everything(given: argparse.Namespace, folder: Path) -> list[Ran]:
    """Every stretch, side by side; what is told of each goes to stderr as it ends."""
    size, every = SIZES[given.set], drawn(given)
    cases = recorded_cases(vllm_runs(given)) if size.recorded or given.only else []
    if given.only:
        every = [draw for draw in every if {draw.name, draw_name(draw)} & set(given.only)]
        cases = [case for case in cases if case.name in given.only]

    # the longest first, so that none is left alone at the end
    todo = sorted(every, key=lambda draw: draw.group == "shipped")
    of_draw = partial(_ran, folder=folder, given=given)
    # a fork after polars was imported may wait for a lock for ever
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=spawn) as pool:
        return [*_told(pool.map(run_recorded, cases)), *_told(pool.map(of_draw, todo))]


def _ran(draw: Draw, folder: Path, given: argparse.Namespace) -> Ran:
    """What came of a draw; as it was kept of this draw and commit, where it was."""
    kept = (
        None
        if given.keep is None
        else given.keep / f"{draw_name(draw)}-{draw.digest}-{_commit()}.pickle"
    )
    if kept is not None and kept.exists():
        ran: Ran = pickle.loads(kept.read_bytes())
        return ran
    size, into = SIZES[given.set], folder / draw_name(draw)
    ran = run_draw(
        draw, into, explains=size.explains, whatifs=size.whatifs, trees=dict(given.beside)
    )
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(ran))
    return ran


def _told(ran: Iterable[Ran]) -> Iterable[Ran]:
    for one in ran:
        stretch = one.stretch
        print(
            f"{stretch.name} ({stretch.draw}): {len(stretch.findings)} findings, made in "
            f"{one.make_seconds:.1f} s, replayed in {one.replay_seconds:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        yield one


def _figures(ran: Sequence[Ran], given: argparse.Namespace) -> dict[str, Any]:
    """What is counted over stretches, and the stretches."""
    stretches, seed = [r.stretch for r in ran], given.seed
    gains = [whatif.gain_of(one) for r in ran for one in r.gains]
    return {
        "schema_version": 2,
        "seed": seed,
        "set": given.set,
        "only": given.only or None,
        "commit": _commit(),
        "date": given.date,
        "false_alarms": {
            group: false_alarms(found, seed=seed)
            for group in ("healthy", "shipped", "grid", "recorded")
            if (found := [r.stretch for r in ran if r.group == group])
        },
        "goals": goals(ran, seed=seed),
        "detection": detection(stretches, seed=seed),
        "unexpected": unexpected(stretches),
        "leaves": {
            "driftwatch explain": confusion(
                chain.from_iterable(r.explained for r in ran), seed=seed
            ),
            "pages and tickets": confusion(chain.from_iterable(r.paged for r in ran), seed=seed),
        },
        "recommendation": whatif.summary(gains, seed=seed),
        "healthy_ln_r": _ln_r(ran),
        "stretches": [
            {
                "name": r.stretch.name,
                "draw": r.stretch.draw,
                "group": r.group,
                "servers": len(r.stretch.instances),
                "episodes": len(r.stretch.episodes),
                "findings": len(r.stretch.findings),
            }
            for r in ran
        ],
    }


def _ln_r(ran: Iterable[Ran]) -> dict[str, Any]:
    """By kind of traffic where nothing was injected, by group where something was."""
    of: dict[str, list[Ran]] = {}
    for one in ran:
        if one.group != "recorded":
            of.setdefault(one.stretch.name if one.group == "healthy" else one.group, []).append(one)
    return {
        name: healthy_summary([w for r in some for w in r.wanders]) for name, some in of.items()
    }


def _disguised(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    if not SIZES[given.set].recorded:
        return []
    cases = [
        case
        for case in recorded_cases(vllm_runs(given))
        if not given.only or case.name in given.only
    ]
    if not given.only or HIDDEN in given.only:
        draw = Draw(HIDDEN, derived(given.seed, HIDDEN, 0), HIDDEN, "shipped")
        cases.append(fleets.made(draw, folder / "plain"))
    return [disguise.same_findings(case, folder / f"hidden-{case.name}") for case in cases]


def _commit() -> str:
    told = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"


def _cost(ran: Sequence[Ran], took_seconds: float) -> dict[str, Any]:
    def months(one: Ran) -> float:
        spans = (one.stretch.stays(instance) for instance in one.stretch.instances)
        return sum(last - first for stays in spans for first, last in stays) / MONTH_SECONDS

    def each(seconds: Callable[[Ran], float], which: Sequence[Ran]) -> float | None:
        over = sum(months(r) for r in which)
        return sum(seconds(r) for r in which) / over if over else None

    simulated = [r for r in ran if r.make_seconds > 0]
    return {
        "server_months": sum(months(r) for r in ran),
        "replay_seconds_per_server_month": each(lambda r: r.replay_seconds, ran),
        "generate_seconds_per_server_month": each(lambda r: r.make_seconds, simulated),
        "took_seconds": took_seconds,
    }


if __name__ == "__main__":
    raise SystemExit(main())
