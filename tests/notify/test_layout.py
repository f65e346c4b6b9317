"""Lines of a terminal: what is broken and what is not."""

from driftwatch.notify.layout import wrap


def test_a_path_of_a_command_to_type_stays_whole() -> None:
    path = "/" + "x" * 90
    assert wrap(f"next:    driftwatch recommend --db {path}", 80, " " * 9)[-1].strip() == path
    assert all(len(line) <= 80 for line in wrap(f"seen at {path}", 80))
