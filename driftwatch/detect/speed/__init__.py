"""Speed at equal load: the pinned load model, and how fast the engine is against it."""
