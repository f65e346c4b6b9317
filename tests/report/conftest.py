from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from filled import fill
from report_cases import SLO, fleet_recording

from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.store import Store


@pytest.fixture(scope="session")
def fleet_plan() -> Plan:
    plan = plan_of_rules(())
    pool = Pool("chat-8b", slo=SLO, gpus_per_replica=1.0)
    return replace(plan, pools=(pool,), accepts_proposals=True)


@pytest.fixture(scope="session")
def fleet_database(tmp_path_factory: pytest.TempPathFactory, fleet_plan: Plan) -> Path:
    """A store that a fleet's recording was replayed into; not to be written to."""
    folder = tmp_path_factory.mktemp("report")
    source = fleet_recording(folder / "fleet")
    with Store.open(folder / "fleet.db") as store:
        fill(store, [source], source.span(), fleet_plan)
    source.close()
    return folder / "fleet.db"


@pytest.fixture
def fleet_store(fleet_database: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of it that a test may write to."""
    copy = tmp_path / "copy.db"
    shutil.copy(fleet_database, copy)
    with Store.open(copy) as store:
        yield store
