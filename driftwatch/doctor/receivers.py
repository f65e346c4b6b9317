"""Does somebody get the pages?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driftwatch.doctor.checks import Check, Status
from driftwatch.incidents.planner import Routes
from driftwatch.model import Severity
from driftwatch.rulebook.rules import Rule
from driftwatch.settings.secret_files import others_can_read


def receiver_checks(receivers: Iterable[tuple[str, str | None]]) -> list[Check]:
    """Whether somebody gets the pages: receiver name and why a secret of it cannot be read."""
    checks = [
        Check("ok", name, "receiver: its secrets can be read")
        if reason is None
        else Check("MISSING", name, f"receiver: {reason}", ("pages to this receiver",))
        for name, reason in receivers
    ]
    none = Check(
        "MISSING",
        "receivers",
        "none configured: pages reach nobody",
        ("every page",),
        "receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]",
    )
    return checks or [none]


def secret_file_checks(files: Iterable[Path]) -> list[Check]:
    """Secret files that every user of the machine can read."""
    return [
        Check("WARNING", str(file), "other users can read this secret", fix=f"chmod 0400 {file}")
        for file in files
        if others_can_read(file)
    ]


def route_checks(routes: Routes, rules: Iterable[Rule]) -> list[Check]:
    """Whether pages and tickets reach somebody, whatever their labels."""
    checks = []
    severities: tuple[Severity, ...] = ("page", "ticket")
    for severity in severities:
        ids = [rule.id for rule in rules if any(one.severity == severity for one in rule.variants)]
        rest = routes.of_severity(severity)
        if ids and rest.reaches_nobody:
            what = f"{severity}s reach nobody: {rest.why}"
            fix = "put the severity among a receiver's severities"
            status: Status = "MISSING" if severity == "page" else "WARNING"
            lost = (f"every {severity}",)
            checks.append(Check(status, "routes", what, lost, fix, setting=("receivers",)))
        elif ids:
            checks.append(Check("ok", "routes", f"{severity}s reach a receiver: {rest.why}"))
    return checks
