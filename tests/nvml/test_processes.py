"""From a GPU's processes to the ports that they and their parents listen on."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from nvml_cases import StandIn, collect, rows, why

from driftwatch.collect.nvml.machine import Listeners, NoPorts
from driftwatch.collect.nvml.source import NvmlSource

TABLE = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)


class Proc:
    """A procfs of the processes that a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "net").mkdir(parents=True)
        (folder / "self" / "ns").mkdir(parents=True)
        (folder / "self" / "ns" / "net").symlink_to("net:[1]")
        self._tables: dict[str, str] = {}
        self._number = 0

    def process(
        self, pid: int, parent: int, inodes: tuple[int, ...] = (), net: str | None = "net:[1]"
    ) -> None:
        place = self.folder / str(pid)
        (place / "fd").mkdir(parents=True)
        (place / "ns").mkdir()
        if net is not None:
            (place / "ns" / "net").symlink_to(net)
        (place / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nPPid:\t{parent}\n")
        for number, inode in enumerate(inodes):
            (place / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        (place / "fd" / "99").symlink_to("/dev/nvidia0")

    def socket(self, port: int, inode: int, state: str = "0A", table: str = "tcp") -> None:
        self._number += 1
        address = "00000000:" if table == "tcp" else "0" * 32 + ":"
        text = self._tables.setdefault(table, TABLE)
        self._tables[table] = text + (
            f"   {self._number}: {address}{port:04X} {address}0000 {state} 00000000:00000000 "
            f"00:00000000 00000000     0        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
        )
        (self.folder / "net" / table).write_text(self._tables[table])


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def test_ports_of_the_ancestors_count(proc: Proc) -> None:
    # API server 10 listens on 8000; engine core 20; worker 30 with its own store on 29500
    proc.process(10, 1, (500,))
    proc.process(20, 10)
    proc.process(30, 20, (501, 777))
    proc.process(1, 0, (502,))
    proc.socket(8000, 500, table="tcp6")
    proc.socket(29500, 501)
    proc.socket(22, 502)
    proc.socket(9999, 777, state="01")  # a connection, not a listener
    listeners = Listeners(proc.folder)
    assert listeners.ports([30]) == [22, 8000, 29500]
    assert listeners.ports([20]) == [22, 8000]
    assert listeners.ports([]) == []


def test_two_servers_on_one_host_are_told_apart(proc: Proc) -> None:
    for pid, port in ((10, 8000), (11, 8001)):
        proc.process(pid, 1, (port,))
        proc.process(pid + 10, pid)
        proc.socket(port, port)
    proc.process(1, 0)
    listeners = Listeners(proc.folder)
    assert (listeners.ports([20]), listeners.ports([21])) == ([8000], [8001])
    assert listeners.ports([20, 21]) == [8000, 8001]


def test_a_process_that_does_not_show_is_of_another_namespace(proc: Proc) -> None:
    proc.process(10, 0, (500,))
    proc.socket(8000, 500)
    with pytest.raises(NoPorts, match="another pid namespace"):
        Listeners(proc.folder).ports([4711])
    assert Listeners(proc.folder).ports([10, 4711]) == [8000]


def test_ports_of_another_network_are_not_this_machines(proc: Proc) -> None:
    proc.process(10, 0, (500,), net="net:[2]")
    proc.socket(8000, 500)
    with pytest.raises(NoPorts, match="another network namespace"):
        Listeners(proc.folder).ports([10])


def test_a_process_that_may_not_be_looked_into(proc: Proc) -> None:
    proc.process(10, 0, (500,), net=None)
    proc.socket(8000, 500)
    fds = proc.folder / "10" / "fd"
    for entry in fds.iterdir():
        entry.unlink()
    fds.rmdir()  # root may read everything, so that a mode would tell nothing
    with pytest.raises(NoPorts, match="no permission"):
        Listeners(proc.folder).ports([10])


def test_a_loop_of_parents_ends(proc: Proc) -> None:
    proc.process(10, 20, (500,))
    proc.process(20, 10)
    proc.socket(8000, 500)
    assert Listeners(proc.folder).ports([20]) == [8000]


def test_the_rows_carry_the_ports(stand_in: StandIn, source: NvmlSource, proc: Proc) -> None:
    proc.process(10, 0, (500,))
    proc.process(20, 10)
    proc.socket(8000, 500)
    stand_in.values = {"used": {0: 2**20}, "pids": {0: []}}
    assert rows(collect(source))["GPU-0"]["ports"] == []  # nobody computes there
    stand_in.values["pids"][0] = [20]
    assert rows(collect(source))["GPU-0"]["ports"] == [8000]
    # memory in use and nobody shown: NVML hides the processes of other namespaces
    stand_in.values = {"used": {0: 2**35}, "pids": {0: []}}
    hidden = rows(collect(source))["GPU-0"]
    assert why(hidden, "ports") == "n/a: processes of another pid namespace"
    stand_in.errors = {("nvmlDeviceGetComputeRunningProcesses", 0): 4}
    assert why(rows(collect(source))["GPU-0"], "ports") == "n/a: NoPermission"


def test_own_sockets_are_found_in_the_real_procfs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        found = Listeners().ports([os.getpid()])
        assert one.getsockname()[1] in found
