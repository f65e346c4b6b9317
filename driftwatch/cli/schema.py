"""``driftwatch schema``: the JSON Schema of what driftwatch prints, sends and reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# files that people write → which files they are, and the way up from their folder
FILES: Mapping[str, tuple[str, str]] = {
    "rules": ("rule files", ""),
    "tree": ("trees in trees/", "../"),
    "test": ("tests in tests/", "../"),
    "config": ("driftwatch.yaml", ""),
}
# what --json prints and receivers get → where its model is
NOUNS: Mapping[str, str] = {
    "page": "notify.page:Page",
    "advice": "recommend.advice:Answer",
    "verification": "verify.verification:Verification",
    "baseline": "detect.baselines:Baseline",
    "explanation": "notify.explanation:Explanation",
    "report": "report.report:Report",
    "delivery": "incidents.delivery:Delivery",
    "incident": "incidents.incident:Incident",
    "silence": "incidents.silence:Silence",
}
NAMES = (*NOUNS, *FILES)


@click.command("schema")
@click.argument("noun", required=False, type=click.Choice(NAMES), metavar="[NOUN]")
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the schema of NOUN, else those of all files that people write, into this folder.",
)
def command(noun: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of NOUN; without NOUN list them.

    NOUN is incident, page, delivery, silence, baseline, advice, verification, explanation or report
    (as --json prints and as receivers get them), or rules, tree, test or config (files). An editor
    with a YAML language server checks a file that names its schema in line 1, relative to the file:
    # yaml-language-server: $schema=schemas/rules.schema.json
    """
    if folder is None:
        click.echo("\n".join(NAMES) if noun is None else schema_text(noun))
        return
    paths = write_schemas(folder, FILES if noun is None else (noun,))
    for path in paths:
        click.echo(f"wrote {path}")
    for path in paths:
        if (name := path.name.split(".")[0]) in FILES:
            where, up = FILES[name]
            click.echo(f"line 1 of {where} beside {folder}:")
            click.echo(f"  {modeline(f'{up}{folder.name}/{path.name}')}")


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a noun or of a file that people write, by one of :data:`NAMES`."""
    if name in NOUNS:
        module, _, model = NOUNS[name].partition(":")
        kind: type[BaseModel] = getattr(import_module(f"driftwatch.{module}"), model)
    else:
        kind = _file_models()[name]
    mode: Any = "serialization" if name in NOUNS else "validation"
    schema = kind.model_json_schema(mode=mode, schema_generator=_generator())
    if name == "tree":  # a tree that continues another one may say less of a node
        schema["$defs"]["NodeInFile"].pop("required", None)
    return {"$schema": DIALECT, **schema, "title": f"driftwatch {name}"}


def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        """Without warnings about defaults: they are left out."""

        ignored_warning_kinds = frozenset(("skipped-choice", "non-serializable-default"))  # type: ignore[assignment]

    return Quiet


def _file_models() -> dict[str, type[BaseModel]]:
    """The models of files, with what their readers take apart first."""
    from pydantic import create_model

    from driftwatch.rulebook.overrides import OverrideInFile
    from driftwatch.rulebook.rules import RuleFile, RuleInFile, RulesInFile
    from driftwatch.rulebook.trees import LeafInFile, NodeInFile, TreeInFile
    from driftwatch.ruletests.cases import RuleTestFile
    from driftwatch.settings import Settings
    from driftwatch.settings.rules import RuleSettings

    create: Any = create_model

    def of(base: type[BaseModel], **fields: Any) -> Any:
        kept = {name: (kind, base.model_fields[name]) for name, kind in fields.items()}
        return create(base.__name__, __base__=base, **kept)

    group: Any = of(RulesInFile, rules=tuple[RuleInFile, ...])
    overrides: Any = of(RuleSettings, overrides=tuple[OverrideInFile, ...])
    return {
        "rules": of(RuleFile, groups=tuple[group, ...]),
        "tree": create(
            "TreeFile",
            __base__=TreeInFile,
            nodes=(dict[str, NodeInFile], ...),
            leaves=(dict[str, LeafInFile] | None, None),
        ),
        "test": RuleTestFile,
        "config": of(Settings, rules=tuple[str, ...] | overrides),
    }


def schema_text(name: str) -> str:
    """The JSON text of :func:`schema_of`."""
    return json.dumps(schema_of(name), indent=1, ensure_ascii=False)


def write_schemas(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files that were written or were there already, as they are in this version.

    Raises UsageError: the folder cannot be written.
    """
    paths = []
    for name in names:
        path = folder / f"{name}.schema.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(schema_text(name) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def modeline(path: Path | str) -> str:
    """Line 1 of a YAML file whose schema this is, seen from there."""
    return f"# yaml-language-server: $schema={path}"
