"""Conditions of rules and trees where they stand, their lints, and those of whole trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Literal

from sqlglot import exp

from driftwatch.condition import Condition, parse_condition
from driftwatch.condition_text import position, span_of
from driftwatch.diagnose.tree import Tree
from driftwatch.errors import ConditionError, Problem
from driftwatch.evidence import BY_NAME, Column
from driftwatch.rulebook.book import Reading
from driftwatch.rulebook.rules import Rule
from driftwatch.rulebook.trees import ReadTree
from driftwatch.rulebook.truths import possible
from driftwatch.yaml_models import near, node_at, place_of
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile

Way = Literal["yes", "no"]
Answer = tuple[Condition, bool]
_COMPARISON = exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.Between | exp.In
# the lints, each with a heading of its name in docs/sre/checks.md
LINTS: Mapping[str, Literal["error", "warning"]] = {
    # conditions
    "never-holds": "error",
    "always-holds": "error",
    "unit": "warning",
    "until-contradicts": "error",
    # times
    "for-rounded": "warning",
    "for-long": "warning",
    # overrides
    "shadowed": "warning",
    "no-effect": "warning",
    # who hears of it
    "unrouted": "warning",
    # what on-call reads
    "no-summary": "warning",
    "template": "error",
    "runbook-url": "error",
    "no-runbook": "warning",
    # trees
    "unreachable-leaf": "error",
}
CONDITION_KEYS = ("when", "given", "until")


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition as written."""

    file: YamlFile
    entries: Entries  # the rule, override or node
    key: str  # when, given or until
    condition: Condition

    @property
    def comparisons(self) -> Iterator[exp.Expr]:
        """Its comparisons of columns that exist."""
        for part in comparisons(self.condition.predicate):
            if all(column.name in BY_NAME for column in part.find_all(exp.Column)):
                yield part

    @property
    def place(self) -> Place:
        """Where its text begins."""
        return place_of(self.entries, (self.key,))

    def part(self, node: exp.Expr | None) -> Place:
        """Where a comparison of it stands, on its first line; None = all of it."""
        scalar, text = self.entries.entries[self.key][1], self.condition.text
        if not isinstance(scalar, Scalar):
            return self.place
        start, end = (0, len(text)) if node is None else span_of(node, text)
        end = min(end, f"{text}\n".index("\n", start))
        return self.file.inside(scalar, *position(text, start), end - start)

    def written(self, node: exp.Expr) -> str:
        """A comparison as its author wrote it."""
        start, end = span_of(node, self.condition.text)
        return " ".join(self.condition.text[start:end].split())


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule, or an override of it, where it stands."""

    file: YamlFile
    entries: Entries  # without the keys that are wrong
    rule: Rule
    written: Entries | None = None  # with them; None = of an override

    @property
    def is_rule(self) -> bool:
        """It is no override."""
        return self.written is not None

    @property
    def says_what_is_wrong(self) -> bool:
        """Its page says what is wrong, well or not."""
        page = (self.written or self.entries).entries.get("page", (None, None))[1]
        return bool(self.rule.page.says) or (isinstance(page, Entries) and "says" in page.entries)

    def place(self, *key: str) -> Place:
        """Where the value of a key stands."""
        return place_of(self.entries, key)

    @property
    def clauses(self) -> Iterator[Clause]:
        """The conditions that it writes down, as far as they can be read."""
        return clauses_of(self.file, self.written or self.entries)


def clauses_of(file: YamlFile, entries: Entries) -> Iterator[Clause]:
    """The conditions of a rule, override or node; columns that do not exist may stand in them."""
    for key in CONDITION_KEYS:
        node = node_at(entries, (key,))
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            continue
        text = node.value.rstrip()
        with suppress(ConditionError):
            try:
                condition = parse_condition(text)
            except ConditionError as error:
                wrong = [one.message for one in (error, *error.others)]
                columns = {**BY_NAME, **dict.fromkeys(wrong, BY_NAME["scrapes"])}
                condition = parse_condition(text, columns=columns)
            yield Clause(file, entries, key, condition)


def variants_of(reading: Reading) -> Iterator[Variant]:
    """Every rule, or what of it could be read; of an override one of the rules that it makes."""
    for one in reading.rules:
        if one.rule is not None:
            yield Variant(one.file, one.entries, one.rule, one.entries)
        elif one.partly is not None:
            yield Variant(one.file, *one.partly, one.entries)
    for made in reading.overrides:
        for rule in made.rules[:1]:
            yield Variant(made.file, made.entries, rule)


def problem(
    file: YamlFile, place: Place, code: str, message: str, help_text: str | None = None
) -> Problem:
    """A lint's problem, with the severity of its code."""
    return file.problem(place, code, message, help_text, LINTS[code])


def clause_problems(clause: Clause) -> Iterator[Problem]:
    """What is wrong with a condition by itself: ranges and units."""
    of_ranges = list(_range_problems(clause))
    if not of_ranges and clause.condition.columns <= BY_NAME.keys():
        of_ranges = list(_whole_problems(clause))
    yield from of_ranges
    yield from _unit_problems(clause)


def _range_problems(clause: Clause) -> Iterator[Problem]:
    """Comparisons of one column that its range, or its words, make true or false for good."""
    for part in clause.comparisons:
        if isinstance(part, exp.In):
            for item in part.expressions:
                equal = exp.EQ(this=part.this.copy(), expression=item.copy())
                if not possible((equal, True)):
                    message = f"{equal.sql()} never holds: {_range(equal)}"
                    place = clause.part(part)
                    yield problem(clause.file, place, "never-holds", message, _instead(equal))
        elif (word := _for_good(part)) is not None:
            message = f"{clause.written(part)} {word} holds: {_range(part)}"
            yield problem(clause.file, clause.part(part), f"{word}-holds", message, _instead(part))


def _whole_problems(clause: Clause) -> Iterator[Problem]:
    """Comparisons that together are true or false for good."""
    if clause.condition.columns and (word := _for_good(clause.condition.predicate)) is not None:
        text = " ".join(clause.condition.text.split())
        why = "its comparisons exclude each other" if word == "never" else "one of its sides does"
        message = f"{clause.key}: {text} {word} holds: {why}"
        help_text = "AND wants both sides, OR one of them"
        yield problem(clause.file, clause.part(None), f"{word}-holds", message, help_text)


def _for_good(node: exp.Expr) -> Literal["always", "never"] | None:
    """Whether a condition holds in every row that has a verdict, or in none."""
    if not possible((node, True)):
        return "never"
    return None if possible((node, False)) else "always"


def comparisons(node: exp.Expr) -> Iterator[exp.Expr]:
    """The comparisons that a condition joins by AND, OR and NOT."""
    match node:
        case exp.And() | exp.Or():
            yield from comparisons(node.this)
            yield from comparisons(node.expression)
        case exp.Paren() | exp.Not():
            yield from comparisons(node.this)
        case _ if isinstance(node, _COMPARISON):
            yield node


def _columns(node: exp.Expr) -> list[Column]:
    names = dict.fromkeys(column.name for column in node.find_all(exp.Column))
    return [BY_NAME[name] for name in names]


def _range(node: exp.Expr) -> str:
    """What the columns of a comparison may be."""
    columns = _columns(node)
    if _is_reversed(node):
        return "BETWEEN takes the lower end first"
    texts = []
    for column in columns:
        name = column.name if len(columns) > 1 else "the column"
        if column.words:
            texts.append(f"{name} is {', '.join(column.words[:-1])} or {column.words[-1]}")
        elif column.low is not None and column.high is not None:
            texts.append(f"{name} is {column.low:g} to {column.high:g}")
        elif column.low is not None:
            texts.append(f"{name} is {column.low:g} or more")
    return ", ".join(texts) or "it compares constants"


def _instead(node: exp.Expr) -> str | None:
    """What its author may have meant."""
    columns = _columns(node)
    if _is_reversed(node):
        return f"write BETWEEN {node.args['high'].sql()} AND {node.args['low'].sql()}"
    if len(columns) != 1:
        return None
    column = columns[0]
    is_plain = node.find(exp.Add, exp.Sub, exp.Mul, exp.Div) is None
    for literal in node.find_all(exp.Literal) if is_plain else ():
        if literal.is_string and column.words and literal.this not in column.words:
            return near(str(literal.this), column.words)
        if not literal.is_string and column.high == 1.0 and 1.0 < float(literal.this) <= 100.0:
            return f"a share is 0 to 1: write {float(literal.this) / 100:g}"
    return f"driftwatch evidence {column.name} explains the column"


def _is_reversed(node: exp.Expr) -> bool:
    """Whether it is a BETWEEN whose first number is the larger one."""
    if not isinstance(node, exp.Between):
        return False
    ends = [node.args[key] for key in ("low", "high")]
    if any(not isinstance(end, exp.Literal) or end.is_string for end in ends):
        return False
    low, high = (float(end.this) for end in ends)
    return low > high


def _unit_problems(clause: Clause) -> Iterator[Problem]:
    """Thresholds far above what a column is: milliseconds, per cent."""
    for part in clause.comparisons:
        columns = _columns(part)
        if len(columns) != 1 or part.find(exp.Add, exp.Sub, exp.Mul, exp.Div) is not None:
            continue
        column = columns[0]
        if column.usual is None or _for_good(part) is not None:
            continue
        for literal in part.find_all(exp.Literal):
            if literal.is_string or float(literal.this) <= column.usual:
                continue
            number = float(literal.this)
            if column.unit == "seconds":
                minutes = f" is {number / 60:,.3g} min," if number >= 120 else " is"
                message = f"{number:,g} s{minutes} too long for {column.name}"
                help_text = f"for {number:,g} ms write {number / 1000:g}"
            else:
                message = f"{column.name} is a ratio: {number:g} is {number * 100:,g} %"
                help_text = f"for {number:g} % write {number / 100:g}"
            yield problem(clause.file, clause.part(part), "unit", message, help_text)
            break


def condition_problems(one: Variant) -> Iterator[Problem]:
    """Lints of the conditions of a rule or an override."""
    for clause in one.clauses:
        yield from clause_problems(clause)
    yield from _until(one)


def _until(one: Variant) -> Iterator[Problem]:
    """An end that comes while the condition still holds, or never."""
    rule, written = one.rule, one.entries.entries.keys()
    if rule.until is None or not {"when", "until", "given"} & written:
        return
    given = () if rule.precondition is None else ((rule.precondition.predicate, True),)
    until, when = rule.until.predicate, rule.when.predicate
    key = next(key for key in ("until", "when", "given") if key in written)
    help_text = "say when the incident ends: waiting_requests < 10 after waiting_requests > 20"
    if not possible((until, True), *given):
        if given and possible((until, True)):
            message = f"until: {rule.until.text} never holds where given: does: no incident ends"
            yield problem(one.file, one.place(key), "until-contradicts", message, help_text)
    elif possible((when, True), *given) and not possible((when, True), *given, (until, False)):
        message = f"until: {rule.until.text} holds whenever when: {rule.when.text} does"
        yield problem(one.file, one.place(key), "until-contradicts", message, help_text)


def tree_problems(one: ReadTree) -> Iterator[Problem]:
    """Every lint of a tree, of one with problems as far as it could be read."""
    there = node_at(one.entries, ("nodes",))
    nodes = there.entries.values() if isinstance(there, Entries) else ()
    clauses = [c for _, of in nodes if isinstance(of, Entries) for c in clauses_of(one.file, of)]
    of_conditions = [found for clause in clauses for found in clause_problems(clause)]
    yield from of_conditions
    if one.partly is not None and all(found.severity != "error" for found in of_conditions):
        yield from _dead_ends(one, one.partly)


def _dead_ends(one: ReadTree, tree: Tree) -> Iterator[Problem]:
    """Leaves that no minute reaches, because the questions before say otherwise."""
    reached = {getattr(tree.nodes[node], way) for node, way in possible_edges(tree)}
    for name, leaf in tree.leaves.items():
        entries = node_at(one.entries, ("leaves", leaf.name))
        if name not in reached and entries is not None:
            place = one.entries.entries["leaves"][1].entries[name][0]  # type: ignore[union-attr]
            message = f"no minute ends in {name}: the questions before it exclude each other"
            yield problem(one.file, place, "unreachable-leaf", message)


def possible_edges(tree: Tree) -> frozenset[tuple[str, Way]]:
    """Node and answer of every edge that questions above, of the same columns, do not rule out."""
    answers: dict[str, set[Answer]] = {tree.start: set()}  # node → what every way to it established
    edges: set[tuple[str, Way]] = set()
    graph = {n: [t for t in (one.yes, one.no) if t in tree.nodes] for n, one in tree.nodes.items()}
    # each node after those that lead to it
    for name in reversed([*TopologicalSorter(graph).static_order()]):
        if (established := answers.get(name)) is None:
            continue
        node = tree.nodes[name]
        related = [
            (condition.predicate, truth)
            for condition, truth in established
            if condition.columns & node.when.columns
        ]
        ways: tuple[tuple[bool, Way], ...] = ((True, "yes"), (False, "no"))
        for truth, way in ways:
            # a condition that could not be read has no columns
            if node.when.columns and not possible(*related, (node.when.predicate, truth)):
                continue
            edges.add((name, way))
            now = established | {(node.when, truth)}
            following = getattr(node, way)
            answers[following] = answers.get(following, now) & now
    return frozenset(edges)
