"""How long `driftwatch rules check` takes, beside `promtool check rules` on as many rules.

    python bench/rules_check.py [--rules N] [--runs K] [--seed S]

Both read one file of N rules, each with a condition of its own (two to four comparisons), `for`,
labels and annotations, and start anew for every run. Times are processor time of the process with
its start, the median of K runs, the two programs in turn. promtool reads the same rules as PromQL;
it has no ranges of columns and compares no rules with each other beyond equal names. Exit status 1
where driftwatch is over the goal.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOAL_SECONDS = 2.0
# a condition, and about the same in PromQL
FORMS = (
    ("{a} > {x} AND {b} < {y}", "{a} > {x} and {b} < {y}"),
    ("{a} > {x} AND ({b} < {y} OR {c} >= {z})", "{a} > {x} and ({b} < {y} or {c} >= {z})"),
    ("{a} BETWEEN {x} AND 9{x} AND NOT {b} < {y}", "{a} >= {x} and {a} <= 9{x} unless {b} < {y}"),
)
COUNTS = (
    "waiting_requests",
    "running_requests",
    "waiting_capacity_requests",
    "requests_per_second",
)
SHARES = ("kv_cache_usage_ratio", "limit_binding_share_10m_ratio", "prefix_cache_hit_ratio")
SECONDS = ("ttft_10m_seconds", "batch_assembly_wait_10m_seconds", "itl_seconds_mean")


def rules(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Conditions of driftwatch and of Prometheus, no two alike."""
    random_ = random.Random(seed)
    for number in range(count):
        names = {"a": random_.choice(COUNTS), "b": random_.choice(SHARES)}
        names["c"] = random_.choice(SECONDS)
        values = {"x": 1 + number, "y": random_.randint(100, 999) / 1000}
        values["z"] = random_.randint(1, 49) / 10
        for_us, for_promtool = random_.choice(FORMS)
        yield for_us.format(**names, **values), for_promtool.format(**names, **values)


def write(folder: Path, count: int, seed: int) -> tuple[Path, Path]:
    """The two files."""
    texts: dict[str, list[str]] = {"when": ["groups:"], "expr": ["groups:"]}
    for number, conditions in enumerate(rules(count, seed)):
        for key, condition in zip(("when", "expr"), conditions, strict=True):
            lines = texts[key]
            if number % 100 == 0:
                lines += [f"  - name: group{number}", "    rules:"]
            lines += [
                "      # measured over 30 days",
                f"      - alert: Rule{number}",
                f"        {key}: {condition}",
                f"        for: {number % 15 + 1}m",
                "        keep_firing_for: 5m",
                *(["        severity: ticket"] if key == "when" else []),
                f"        labels: {{team: team{number % 7}, service: service{number}}}",
                "        annotations:",
                f"          summary: rule {number} of the pool",
                f"          runbook_url: https://runbooks.example/{number}",
            ]
    paths = folder / "driftwatch.yaml", folder / "prometheus.yaml"
    for path, lines in zip(paths, texts.values(), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def processor_seconds(command: Sequence[str]) -> float:
    """Of one run, which must find nothing wrong."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        sys.exit(f"{' '.join(command)}: exit {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    promtool = shutil.which("promtool")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = write(Path(folder), options.rules, options.seed)
        commands = {"driftwatch": [sys.executable, "-m", "driftwatch", "rules", "check", str(ours)]}
        if promtool is not None:
            commands["promtool"] = [promtool, "check", "rules", str(theirs)]
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, command in commands.items():
                seconds[name].append(processor_seconds(command))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        spread = f"{min(seconds[name]):.2f} to {max(seconds[name]):.2f}"
        print(f"{name:10}  {median:.2f} s ({spread})  {options.rules:,} rules")
    if promtool is not None:
        print(f"ratio       {medians['driftwatch'] / medians['promtool']:.1f}")
    return int(medians["driftwatch"] > GOAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
