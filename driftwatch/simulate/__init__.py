"""The batching simulator: vLLM V1's scheduler, other batchers, step-time laws, workloads.

Pure: requests, a configuration and a step-time law in, times out. Nothing here reads a clock.
"""
