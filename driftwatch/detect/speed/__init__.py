"""Speed at equal load: the baseline's load model, and how fast the engine is against it."""
