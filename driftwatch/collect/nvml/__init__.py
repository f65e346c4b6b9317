"""NVML on the machine that driftwatch runs on."""
