"""Compare the size of everything with scripts/budgets.toml.

    python scripts/budgets.py [--tighten]

Prints each size beside its budget and exits 1 where one is over. Budgets only go down:
``--tighten`` lowers each to the size of now. A rise needs a line in CHANGELOG.md under *Price*.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "scripts" / "budgets.toml"
SECONDS = ROOT / ".pytest_cache" / "make-test-seconds"  # written by `make test`


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows, or would know once they are added."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for line in output.splitlines() if (path := ROOT / line).is_file()]


def lines(*patterns: str) -> int:
    """Lines of files."""
    return sum(path.read_bytes().count(b"\n") for path in tracked(*patterns))


def words(*patterns: str) -> int:
    """Words of files, as `wc -w` counts them."""
    return sum(len(path.read_bytes().split()) for path in tracked(*patterns))


def packages() -> Iterator[tuple[str, int]]:
    """Lines of Python of each package of driftwatch, and of the modules beside them."""
    for folder in sorted(path for path in (ROOT / "driftwatch").iterdir() if path.is_dir()):
        if count := lines(f"driftwatch/{folder.name}/*.py"):
            yield folder.name, count
    yield "modules", lines(":(glob)driftwatch/*.py")


def commands() -> Iterator[click.Command]:
    """The verbs, those of groups one by one."""
    from driftwatch.cli.main import VERBS, command_of

    def leaves(command: click.Command) -> Iterator[click.Command]:
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield command
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from leaves(inner)
        else:
            yield command

    for verb in VERBS:
        yield from leaves(command_of(verb))


def settings() -> int:
    """Keys that a configuration file may have, each counted once where a kind of part has it."""
    from driftwatch.settings.file import Settings

    schema = Settings.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return sum(len(part.get("properties", {})) for part in parts)


def sizes() -> Mapping[str, Mapping[str, int]]:
    """Table of the budgets → name → size of now."""
    verbs = list(commands())
    options = sum(isinstance(one, click.Option) for verb in verbs for one in verb.params)
    tables: dict[str, dict[str, int]] = {
        "lines": {
            "driftwatch": lines("driftwatch/*.py"),
            "tests": lines("tests/*.py"),
            "bench": lines("bench/*.py"),
            "scripts": lines("scripts/*"),
            "deploy": lines("deploy/*"),
        },
        "packages": dict(packages()),
        "count": {
            "modules": len(tracked("driftwatch/*.py")),
            "golden_files": len(tracked("tests/golden/*")),
            "docs_words": words("docs/*.md", "README.md", "CONTRIBUTING.md"),
            "verbs": len(verbs),
            "options": options,
            "settings": settings(),
        },
    }
    if SECONDS.is_file():
        tables["seconds"] = {"make_test": int(SECONDS.read_text())}
    return tables


def tightened(budgets: Mapping[str, Mapping[str, int]]) -> str:
    """The budgets file with each budget at the size of now where that is lower; new ones added."""
    comment = BUDGETS.read_text().split("\n[", 1)[0].rstrip()
    text = [comment]
    for table, now in sizes().items():
        text.append(f"\n[{table}]")
        for name, size in now.items():
            lowered = min(size, budgets.get(table, {}).get(name, size))
            text.append(f"{name} = {budgets[table][name] if table == 'seconds' else lowered}")
    missing = {"seconds": budgets.get("seconds", {})} if not SECONDS.is_file() else {}
    for table, held in missing.items():
        text.append(f"\n[{table}]")
        text += [f"{name} = {value}" for name, value in held.items()]
    return "\n".join(text) + "\n"


def main() -> int:
    """Print the comparison; 1 where something is over its budget or has none."""
    sys.path.insert(0, str(ROOT))
    budgets = tomllib.loads(BUDGETS.read_text())
    if sys.argv[1:] == ["--tighten"]:
        BUDGETS.write_text(tightened(budgets))
        return 0
    over = []
    for table, now in sizes().items():
        for name, size in now.items():
            budget = budgets.get(table, {}).get(name)
            is_over = budget is None or size > budget
            if is_over:
                over.append(f"{table}.{name}: {size}, budget {budget}")
            print(f"{table}.{name:24} {size:8,} of {budget if budget is None else f'{budget:,}'}")
    for line in over:
        print(f"OVER {line}: take something out, or raise it with a line under Price")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
