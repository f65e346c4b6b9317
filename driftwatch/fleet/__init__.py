"""The replayable fleet: servers of a hidden engine whose pages, GPUs and faults are all known."""
