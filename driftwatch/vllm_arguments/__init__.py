"""vLLM's command-line arguments: the settings that driftwatch reads, and mistakes in them."""
