"""``python -m driftwatch`` is the command line."""

from driftwatch.cli.main import main

main()
