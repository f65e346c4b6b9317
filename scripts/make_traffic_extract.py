#!/usr/bin/env python3
"""Make the traffic that the shipped scenarios draw on, from the public traces.

    scripts/make_traffic_extract.py TRACES SERVEGEN [FOLDER]

TRACES holds azure_2023_conv.csv.gz and azure_2023_code.csv.gz (Azure/AzurePublicDataset),
SERVEGEN holds m-small_rates.parquet and m-small_lengths.parquet (alibaba/ServeGen). Nothing is
changed: columns get narrow types, and of ServeGen's clients a few are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

# Small clients with lengths for all 14 days, between them short and long prompts and generations;
# a length table of some 2 bytes a row decides what fits.
CLIENTS = (18, 26, 35, 36)
FOLDER = Path(__file__).resolve().parent.parent / "driftwatch" / "fleet" / "traffic_data"


def azure(path: Path) -> pl.DataFrame:
    """arrival_seconds, prompt_tokens, generation_tokens of a trace, in its order."""
    trace = pl.read_csv(path)
    # 7 digits after the second are more than polars' microseconds take
    time = pl.col("TIMESTAMP").str.slice(0, 26).str.to_datetime("%Y-%m-%d %H:%M:%S%.f")
    return trace.select(
        arrival_seconds=((time - time.first()).dt.total_microseconds() / 1e6).cast(pl.Float32),
        prompt_tokens=pl.col("ContextTokens").cast(pl.UInt16),
        generation_tokens=pl.col("GeneratedTokens").cast(pl.UInt16),
    )


def main() -> None:
    """Write every file."""
    traces, servegen = Path(sys.argv[1]), Path(sys.argv[2])
    folder = Path(sys.argv[3]) if len(sys.argv) > 3 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        f"azure_2023_{name}": azure(traces / f"azure_2023_{name}.csv.gz")
        for name in ("conv", "code")
    }
    for name in ("rates", "lengths"):
        whole = pl.read_parquet(servegen / f"m-small_{name}.parquet")
        made[f"servegen_{name}"] = whole.filter(pl.col("client").is_in(CLIENTS))
    for name, table in made.items():
        path = folder / f"{name}.parquet"
        table.write_parquet(path, compression="zstd", compression_level=22, statistics=False)
        print(f"{path.name}: {len(table):,} rows, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
