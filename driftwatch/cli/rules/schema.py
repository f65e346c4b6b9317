"""``driftwatch rules schema``: what an editor checks and completes files with."""

from __future__ import annotations

from pathlib import Path

import click

NAMES = ("rules", "tree", "test", "config")
# of each: which files it is for, and the way up from their folder
_PLACES = {
    "rules": ("rule files", ""),
    "tree": ("trees in trees/", "../"),
    "test": ("tests in tests/", "../"),
    "config": ("driftwatch.yaml", ""),
}


@click.command("schema")
@click.argument("name", required=False, type=click.Choice(NAMES), metavar="[NAME]")
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the schema, without NAME all four, into this folder.",
)
def command(name: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of rules, tree, test or config files; without NAME of rules.

    An editor with a YAML language server completes and checks a file that names its schema in line
    1: # yaml-language-server: $schema=schemas/rules.schema.json, relative to the file.
    """
    from driftwatch.cli.rules.schema_files import modeline, schema_text, write_schemas

    if folder is None:
        click.echo(schema_text(name or "rules"), nl=False)
        return
    paths = write_schemas(folder, NAMES if name is None else (name,))
    for path in paths:
        click.echo(f"wrote {path}")
    for path in paths:
        where, up = _PLACES[path.name.split(".")[0]]
        click.echo(f"line 1 of {where} beside {folder}:")
        click.echo(f"  {modeline(f'{up}{folder.name}/{path.name}')}")
