"""Sources in, one scrape table out.

The way of a sample::

    API ── raw_samples ► series and samples ─┐ SeriesReader: unit and slot of each series
    page ─ page_text ──► series and samples ─┴─► Samples, one long frame ─► Servers: who is who
    recording = pages, or scrape rows                    unit, slot, time, value    │
                                                                └─► scrape_rows ◄───┘
                                                                        └─► SCRAPE_SCHEMA

DCGM's series go the same way into the GPU table (:class:`driftwatch.collect.dcgm.GpuSamples`).
"""
