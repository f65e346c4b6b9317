"""kill -9 at every point of a tick and of a delivery: what is lost, doubled, or resolved falsely.

    python bench/kills.py --rounds 500

Each round runs the service of :mod:`kill_rounds.world` on a new database, kills it one to three
times, and lets the last life go on to the end. What two receivers got is held against what they get
undisturbed: the same keys, the same bytes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

for name in ("", "bench", "tests"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / name))

from fakes.postgres_server import PostgresServer  # noqa: E402
from kill_rounds.judge import Verdict, play, random_kills, undisturbed  # noqa: E402


def main() -> int:
    """Play the rounds on each database; 1 where a promise was broken."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=250, help="on each database")
    options.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    arguments = options.parse_args()
    kinds = ("sqlite", "postgres") if arguments.database == "both" else (arguments.database,)
    broken = sum(not _played(kind, arguments) for kind in kinds)
    return int(broken > 0)


def _played(kind: str, arguments: argparse.Namespace) -> bool:
    """Whether every promise was kept in all rounds on one kind of database."""
    chance, began = random.Random(arguments.seed), time.monotonic()
    drawn = [random_kills(chance) for _ in range(arguments.rounds)]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        server = stack.enter_context(PostgresServer()) if kind == "postgres" else None

        def database(folder: Path) -> str:
            if server is None:
                return str(folder / "d.db")
            return str(server.url(server.new_database()))

        folder = Path(name) / "undisturbed"
        expected = undisturbed(folder, database(folder))

        def one(number: int) -> Verdict:
            folder, seed = Path(name) / str(number), arguments.seed + number
            verdict = play(folder, database(folder), drawn[number], seed, expected)
            shutil.rmtree(folder)
            return verdict

        pool = stack.enter_context(ThreadPoolExecutor(arguments.jobs))
        verdicts: list[Verdict] = []
        for verdict in pool.map(one, range(arguments.rounds)):
            if not verdict.is_kept:
                print(f"round {len(verdicts)}: {verdict}")
            verdicts.append(verdict)
            if len(verdicts) % 10 == 0:
                print(f"{kind}: {len(verdicts)} rounds", file=sys.stderr)
    kills = Counter(point for verdict in verdicts for point in verdict.kills)
    seconds = time.monotonic() - began
    print(f"{kind}: {arguments.rounds} rounds, {kills.total()} kills, {seconds:.0f} s")
    for point, count in sorted(kills.items()):
        print(f"  {point}: {count}")
    counts = {
        name: sum(len(getattr(verdict, name)) for verdict in verdicts)
        for name in ("lost", "false_resolves", "unequal", "unpromised")
    }
    counts["duplicates"] = sum(verdict.duplicates for verdict in verdicts)
    print("  " + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))
    return all(verdict.is_kept for verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
