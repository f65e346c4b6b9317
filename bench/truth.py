"""What driftwatch's findings are worth: replayed truth, through the public commands only.

    python bench/truth.py --seed N [--set smoke|standard|full] [--detection] [--out FILE.json]
                          [--jobs 2]
                          [--servegen DIR] [--only NAME | --only NAME-SEED]... [--prometheus]
                          [--page docs/truth.md --date YYYY-MM-DD]
    python bench/truth.py --merge FILE.json...

A set is the recorded runs of real servers, the shipped scenarios, healthy weeks and grids of many
episodes; with --detection the recorded runs and larger grids, for the detection figures alone.
docs/truth.md says what each figure means. Everything is drawn from the seed; any seed will do.
`smoke` takes minutes, `standard` a quarter of an hour, `full` hours.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from truth_judge import disguise, golden, saved, through_prometheus, whatif
from truth_judge.commands import Case
from truth_judge.facts import MONTH_SECONDS
from truth_judge.figures import confusion, detection, false_alarms, not_slower, unexpected
from truth_judge.goals import goals
from truth_judge.healthy import summary as healthy_summary
from truth_judge.options import draw_name, drawn, options_of, vllm_runs
from truth_judge.recordings import recorded_cases
from truth_judge.report import into_page, sections
from truth_judge.running import Ran, run_draw, run_recorded
from truth_judge.sets import SIZES, Draw, derived
from truth_judge.shown import shown

HERE = Path(__file__).resolve().parent
THROUGH_PROMETHEUS = "wedged"  # the scenario that goes through a real Prometheus as well
HIDDEN = "rate-surge"  # the one that is replayed in disguise as well


def main(argv: Sequence[str] | None = None) -> int:
    given = options_of(argv, __doc__ or "")
    figures = _put_together(given) if given.merge else _measured(given)
    if given.out is not None:
        given.out.write_text(json.dumps(figures, indent=1) + "\n")
    print("\n".join(sections(figures)))
    if given.page is not None:
        given.page.write_text(into_page(given.page.read_text(), figures))
    return 0


def _measured(given: argparse.Namespace) -> dict[str, Any]:
    """Everything is made and replayed."""
    began, commit = time.perf_counter(), _commit()
    size = SIZES[given.set]
    with tempfile.TemporaryDirectory(prefix="driftwatch-truth-") as scratch:
        folder = given.keep or Path(scratch)
        ran = _everything(given, folder)
        if given.show:
            print("\n".join(shown(given.show, ran, folder)))
        named = f"{given.set} --detection" if given.detection else given.set
        figures = _figures(ran, given.seed, named, commit, given) | {
            "scheduler": _scheduler(given, folder),
            "tick": [] if given.only or given.detection else [_tick(count) for count in size.ticks],
            "disguise": _disguised(given, folder),
            "prometheus": _through_prometheus(given, folder),
        }
    return figures | {"cost": _cost(ran, time.perf_counter() - began)}


def _put_together(given: argparse.Namespace) -> dict[str, Any]:
    """Runs that were made before, as one."""
    ran, runs = saved.merged(given.merge)
    first = runs[0]
    named = ", ".join(sorted({run["set"] for run in runs}))
    commits = ", ".join(sorted({run["commit"] for run in runs}))
    whole = {
        name: max((run[name] for run in runs), key=lambda of: len(of["runs"]))
        for name in ("scheduler",)
    }
    several = {n: [o for run in runs for o in run[n]] for n in ("tick", "disguise", "prometheus")}
    several["seeds"] = sorted({seed for run in runs for seed in run.get("seeds", [run["seed"]])})
    figures = _figures(ran, first["seed"], named, commits, given) | whole | several
    return figures | {"cost": _cost(ran, sum(run["cost"]["took_seconds"] for run in runs))}


def _figures(
    ran: Sequence[Ran], seed: int, named: str, commit: str, given: argparse.Namespace
) -> dict[str, Any]:
    """What is counted over stretches, and the stretches."""
    stretches = [r.stretch for r in ran]
    return {
        "schema_version": 1,
        "seed": seed,
        "seeds": [seed],
        "set": named,
        "only": given.only or None,
        "commit": commit,
        "date": given.date,
        "false_alarms": {
            group: false_alarms(found, seed=seed)
            for group in ("healthy", "shipped", "grid", "recorded")
            if (found := [r.stretch for r in ran if r.group == group])
        },
        "goals": goals(ran, seed=seed),
        "detection": detection(stretches, seed=seed),
        "not_slower": not_slower(stretches, seed=seed),
        "unexpected": unexpected(stretches),
        "leaves": {
            "driftwatch explain": confusion(
                chain.from_iterable(r.explained for r in ran), seed=seed
            ),
            "pages and tickets": confusion(chain.from_iterable(r.paged for r in ran), seed=seed),
        },
        "recommendation": whatif.summary(
            [whatif.gain_of(one) for r in ran for one in r.gains], seed=seed
        ),
        "healthy_ln_r": _ln_r(ran),
        "stretches": [_stretch(r) for r in ran],
        "ran": [saved.as_json(r) for r in ran],
    }


def _everything(given: argparse.Namespace, folder: Path) -> list[Ran]:
    """Every stretch, side by side; what is told of each goes to stderr as it ends."""
    every, cases = drawn(given), recorded_cases(vllm_runs(given))
    cases = cases if SIZES[given.set].recorded or given.only else []
    if given.only:
        every = [draw for draw in every if {draw.name, draw_name(draw)} & set(given.only)]
        cases = [case for case in cases if case.name in given.only]
    explains, whatifs = given.explain_moments, given.recommend_episodes

    def of_draw(draw: Draw) -> Ran:
        into = folder / draw_name(draw)
        kept = given.keep is not None
        return run_draw(draw, into, explains=explains, whatifs=whatifs, keep=kept)

    # the longest first, so that none is left alone at the end
    todo = sorted(every, key=lambda draw: draw.group == "shipped")
    with ThreadPoolExecutor(given.jobs) as pool:
        return [
            *_told(pool.map(run_recorded, cases)),
            *_told(pool.map(of_draw, todo)),
        ]


def _ln_r(ran: Iterable[Ran]) -> dict[str, Any]:
    """By kind of traffic where nothing was injected, by group where something was."""
    of: dict[str, list[Ran]] = {}
    for one in ran:
        if one.group != "recorded":
            of.setdefault(one.stretch.name if one.group == "healthy" else one.group, []).append(one)
    return {
        name: healthy_summary(
            [w for r in some for w in r.wanders],
            [
                (w, r.misfits[w.instance])
                for r in some
                for w in r.wanders
                if w.instance in r.misfits
            ],
        )
        for name, some in of.items()
    }


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


def _commit() -> str:
    told = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"


def _scheduler(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs = []
    for number, run in enumerate(golden.golden_runs(given.data)):
        if given.only or given.detection or given.set == "quick":
            break
        into = _anew(folder / f"golden-{number}")
        into.mkdir(parents=True)
        found = golden.compare(run, into)
        runs.append({name: getattr(found, name) for name in (*found.__dataclass_fields__, "equal")})
    return {"equal": sum(run["equal"] for run in runs), "runs": runs}


def _tick(targets: int) -> dict[str, Any]:
    """One steady tick of a fleet, by bench/tick.py in a process of its own."""
    words = [sys.executable, str(HERE / "tick.py"), "--one", "json", str(targets)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(ran.stdout)
    ordered = sorted(told["ticks"])
    return {
        "targets": targets,
        "median_seconds": ordered[len(ordered) // 2],
        "peak_mib": told["peak"],
    }


def _one_draw(given: argparse.Namespace, name: str) -> Draw | None:
    """The draw of one scenario that a proof is made with."""
    if given.detection or (given.only and name not in given.only):
        return None
    return Draw(name, derived(given.seed, name, 0), name, "shipped")


def _disguised(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    from truth_judge import fleets

    if given.detection:
        return []
    cases: list[Case] = [
        case
        for case in recorded_cases(vllm_runs(given))
        if not given.only or case.name in given.only
    ]
    if given.set == "quick":
        return []
    draw = _one_draw(given, HIDDEN)
    if draw is not None:
        cases.append(fleets.made(draw, folder / "plain"))
    return [disguise.same_findings(case, _anew(folder / f"hidden-{case.name}")) for case in cases]


def _through_prometheus(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    if not given.prometheus:
        return []
    found = [
        through_prometheus.same_findings(case, step_seconds=5.0)
        for case in recorded_cases(vllm_runs(given))
        if not given.only or case.name in given.only
    ]
    draw = _one_draw(given, THROUGH_PROMETHEUS)
    if draw is not None:
        found.append(through_prometheus.scenario_the_same(draw, _anew(folder / "prometheus")))
    return found


def _anew(folder: Path) -> Path:
    """A folder that is not there: what an earlier run kept in it is made again."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _stretch(ran: Ran) -> dict[str, Any]:
    stretch = ran.stretch
    return {
        "name": stretch.name,
        "draw": stretch.draw,
        "group": ran.group,
        "servers": len(stretch.instances),
        "seconds": stretch.end_seconds - stretch.start_seconds,
        "episodes": len(stretch.episodes),
        "findings": len(stretch.findings),
        "make_seconds": ran.make_seconds,
        "replay_seconds": ran.replay_seconds,
    }


def _cost(ran: Sequence[Ran], took_seconds: float) -> dict[str, Any]:
    def months(one: Ran) -> float:
        spans = (one.stretch.stays(instance) for instance in one.stretch.instances)
        return sum(last - first for stays in spans for first, last in stays) / MONTH_SECONDS

    whole = sum(months(r) for r in ran)

    def each(seconds: Callable[[Ran], float], which: Sequence[Ran]) -> float | None:
        over = sum(months(r) for r in which)
        return sum(seconds(r) for r in which) / over if over else None

    simulated = [r for r in ran if r.make_seconds > 0]
    return {
        "server_months": whole,
        "replay_seconds_per_server_month": each(lambda r: r.replay_seconds, ran),
        "generate_seconds_per_server_month": each(lambda r: r.make_seconds, simulated),
        "took_seconds": took_seconds,
    }


if __name__ == "__main__":
    raise SystemExit(main())
