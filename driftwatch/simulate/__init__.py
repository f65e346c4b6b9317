"""The batching simulator: vLLM V1's scheduler, other batchers, step-time models, workloads.

Pure: requests, a configuration and a step-time model in, times out. Nothing here reads a clock.
"""
