"""Thresholds of the limits model, each with its source."""

from __future__ import annotations

# recommendation.md, "Which limit binds": running >= min(0.95 S, S - 1) counts as at the cap.
CAP_BAND_RATIO = 0.95
# recommendation.md, same table; vllm.md 3: under hard thrash usage oscillates 0.74-1.0, so KV is
# pressed from 0.85 or, below it, when requests are preempted.
KV_PRESSED_RATIO = 0.85
# vllm.md 4, W2 with B=256: a full budget shows 199-257 tokens a step (>= 0.78 B), because steps
# that only decode are in the mean.
BUDGET_FULL_RATIO = 0.75
# The mean over a scrape interval holds steps that only decode as well. A third of its steps full is
# about half of its time (a step full of prompts takes at least twice as long as one that decodes):
# as much as makes a limit bind (BINDING_SHARE).
FULL_STEPS_SHARE = 1 / 3
# "running well below S, KV low" (recommendation.md, "Which limit binds"): half of what there is.
NOT_NEAR_RATIO = 0.5
# Requests that begin in a step. Below, those that come during a step are seen waiting in fewer than
# 40 % of scrapes (1 - exp(-0.5)): too few to pass for a limit that binds.
ONE_STEP_LEAST = 0.5
# Of m requests a step, m + 2 sqrt(m) are gone after three steps (m = 1; four for m = 0.5). A wait
# of a second pages (BatchLimitBinding), so at least three steps must fit into one.
STEPS_OF_A_WAIT = 3.0
# A plateau must be seen often enough not to be chance: with 8 scrapes, a level that wandered over
# two values of equal chance would stay in a band of one in 0.4 % of cases.
PLATEAU_MIN_SCRAPES = 8
# With a scrape a minute (Prometheus' default) ten minutes hold ten scrapes, and a limit that binds
# in half of them shows in five: five within the band over at least eight minutes are taken, for
# levels a minute apart are independent of each other (chance as above: 1 in 16 for two values).
PLATEAU_MIN_SPARSE_SCRAPES = 5
PLATEAU_SPARSE_SCRAPES = 12
PLATEAU_SPARSE_SPAN_SECONDS = 480
# run_cap: 76 of 76 queued scrapes in the band. A budget-bound server (vllm.md 4, W2: running
# 3.2-18.5 of 64) leaves the band in most scrapes.
PLATEAU_SHARE = 0.8
# Where the budget is unknown and could be full: with leavers ~ Poisson(1) (S = mean generation
# length) the top two levels hold 74 % of scrapes, with Poisson(2) 41 %; a level that wanders with a
# standard deviation of 3 or more keeps under 15 % there.
PLATEAU_TOP_SHARE = 0.4
# Below 20 requests the band is two levels wide, and a budget that lets one or two requests run
# stays in it for good: there the top itself must be held. At a cap a step frees one place in as
# many as a generation has tokens (run_cap at 8 shows its top in 79 % of scrapes). Of levels that
# wander for 30 min (mean 1.5 to 3, standard deviation 25 %) a tenth remains that the band alone
# takes for a cap.
PLATEAU_EXACT_BELOW_REQUESTS = 20
PLATEAU_EXACT_SHARE = 0.6
PLATEAU_FREED_PER_REQUEST = 0.05
# No budget below 256 tokens is met in practice (vllm.md 2.1: defaults from 2048).
SMALLEST_BUDGET_TOKENS = 256.0
# A full budget shows steps of just about B tokens, and B is a power of two nearly everywhere.
POWER_OF_TWO_BAND = 0.05
# Tokens a step of a full budget are the same from scrape to scrape (a discrete-event run of equal
# requests: within 0.1 %); at a cap they follow the mix of prompts and decodes (1-3 % and more).
FULL_STEP_SPREAD = 0.005
# The window over which a limit is said to bind (detection.md, BatchLimitBinding).
BINDING_WINDOW_SECONDS = 600.0
# "at least half of the last 10 min's scrapes" (detection.md): what binds is named from there on.
BINDING_SHARE = 0.5
# Scrapes are a sample of the time that a page speaks of: 95 % sure that a half is reached (a
# normal deviate). A share that is exactly a half pages once in twenty looks, and waves are that.
SHARE_Z = 1.645
FEWEST_SCRAPES = 3
# Running requests that hold a level look like a cap that nobody configured; of fewer, one more or
# less is the level.
LEVEL_LEAST_REQUESTS = 8
# BatchLimitBinding pages a limit that nobody can name from there on (rules/batch-limits.yaml).
BINDING_ALWAYS = 0.95
# BatchLimitBinding lets go below a quarter (rules/batch-limits.yaml): until then a limit is the
# reason of a missed target of which most is waiting.
BINDING_SHARE_AT_A_COST = 0.25
# "at least half of their TTFT" (detection.md, BatchLimitBinding).
WAITING_SHARE = 0.5
