"""``driftwatch evidence`` and ``schema``: the columns; the JSON Schema of documents and files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import json_option
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel


@click.command(name="evidence")
@click.argument("words", nargs=-1, metavar="[WORDS...]")
@json_option
def evidence_command(words: tuple[str, ...], as_json: bool) -> int:
    """List the evidence columns, or those that have all WORDS.

    WORDS stand in any order in a column's name, its other names, its metrics or its meaning:
    assembly wait, tokens/s/GPU, vllm:num_requests_waiting. Piped, a row is a column: name, unit,
    meaning, metrics, when it is unknown, other names. Exit code 1: no column has them.
    """
    from driftwatch.evidence import COLUMNS, NOT_CONTINUOUS
    from driftwatch.evidence.search import nearest, search

    term, piped = " ".join(words), not sys.stdout.isatty()
    columns = search(term, _wire) if term else COLUMNS
    if as_json:
        print_json({"schema_version": 1, "columns": [asdict(column) for column in columns]})
        return EXIT_ANSWERED if columns else EXIT_PROBLEM
    text = term.lower().replace("_", " ")
    never = {n: why for n, why in NOT_CONTINUOUS.items() if term and text in n.replace("_", " ")}
    for name, why in never.items() if not columns or not piped else ():
        click.echo(f"{name}: {why}")
    for column in columns:
        sources, aliases = ", ".join(map(_wire, column.sources)), ", ".join(column.aliases)
        facts = (column.meaning, sources, column.disabled_by, aliases)
        if piped:
            click.echo("\t".join((column.name, column.unit, *facts)))
            continue
        click.echo(f"{column.name}  [{column.unit}]")
        heads = ("", "from ", "unknown when: ", "also called: ")
        for head, fact in zip(heads, facts, strict=True):
            if fact:
                print_wrapped(f"  {head}{fact}", " " * 4)
    if columns or never:
        return EXIT_ANSWERED
    names = ", ".join(column.name for column in nearest(term, _wire))
    print_wrapped(f"no column has {term!r}" + (f"; nearest: {names}" if names else ""), err=True)
    return EXIT_PROBLEM


def _wire(source: str) -> str:
    """The wire name of a registry column, else the input as it is called."""
    from driftwatch.collect.registry import BY_COLUMN

    if source == "any":
        return "every scrape"
    return BY_COLUMN[source].wire_name if source in BY_COLUMN else source


DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILES = ("rules", "tree", "test", "config")  # that people write
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
@click.argument("noun", required=False, metavar="[NOUN]")
def schema_command(noun: str | None) -> None:
    """Print the JSON Schema of NOUN; without NOUN list them.

    NOUN is incident, page, delivery, silence, baseline, advice, verification, explanation or report
    (as --json prints and as receivers get them), or rules, tree, test or config (files). An editor
    with a YAML language server checks a file that names its schema in line 1, relative to the file:
    # yaml-language-server: $schema=schemas/rules.schema.json
    """
    if noun is not None and noun not in NAMES:
        from driftwatch.yaml_models import near_or_all

        raise UsageError(f"there is no noun {noun!r}", help_text=near_or_all(noun, NAMES, "nouns"))
    click.echo("\n".join(NAMES) if noun is None else schema_text(noun))


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

    from driftwatch.yaml_models import DURATION

    class Quiet(GenerateJsonSchema):
        """Without warnings about defaults: they are left out."""

        ignored_warning_kinds = frozenset(("skipped-choice", "non-serializable-default"))  # type: ignore[assignment]

        def default_schema(self, schema: Any) -> dict[str, Any]:
            """As pydantic's; the default of a duration is written as in a file: ``15s``."""
            found = super().default_schema(schema)
            if found.get("anyOf") == DURATION["anyOf"] and found.get("default"):
                found["default"] = f"{found['default']:g}s"
            return found

    return Quiet


def _file_models() -> dict[str, type[BaseModel]]:
    """The models of files, with what their readers take apart first."""
    from pydantic import create_model

    from driftwatch.rulebook.overrides import OverrideInFile
    from driftwatch.rulebook.rules import RuleFile, RuleInFile, RulesInFile
    from driftwatch.rulebook.trees import LeafInFile, NodeInFile, TreeInFile
    from driftwatch.ruletests.cases import RuleTestFile
    from driftwatch.settings import Settings
    from driftwatch.settings.file import RuleSettings

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
