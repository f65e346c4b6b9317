"""vLLM's arguments wherever they stand: the settings that driftwatch reads, and what is wrong."""
