"""Thresholds of the limits model, each with its reason."""

from __future__ import annotations

# running >= min(0.95 S, S - 1) counts as at the cap
CAP_BAND_RATIO = 0.95
# Under hard thrash usage oscillates between 0.74 and 1: pressed from here on, or when preempted.
KV_PRESSED_RATIO = 0.85
# With a budget of 256 full steps show 199 to 257 tokens: some that only decode are in the mean.
BUDGET_FULL_RATIO = 0.75
# A third of the steps full is about half of the time (a step full of prompts takes at least twice
# as long as one that decodes): as much as makes a limit bind (BINDING_SHARE).
FULL_STEPS_SHARE = 1 / 3
# "well below S", "KV low": half of what there is
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
# With a scrape a minute ten minutes hold ten, and a limit that binds in half of them shows in five:
# five within the band over at least eight minutes (chance as above: 1 in 16 for two values).
PLATEAU_MIN_SPARSE_SCRAPES = 5
PLATEAU_SPARSE_SCRAPES = 12
PLATEAU_SPARSE_SPAN_SECONDS = 480
# At a cap 76 of 76 queued scrapes of run_cap are in the band; bound by its budget a server leaves
# it in most.
PLATEAU_SHARE = 0.8
# Where the budget is unknown and could be full: with leavers ~ Poisson(1) (S = mean generation
# length) the top two levels hold 74 % of scrapes, with Poisson(2) 41 %; a level that wanders with a
# standard deviation of 3 or more keeps under 15 % there.
PLATEAU_TOP_SHARE = 0.4
# Below 20 requests the band is two levels wide, and a budget that lets one or two requests run
# stays in it for good: there the top itself must be held. At a cap a step frees one place in as
# many as a generation has tokens (run_cap at 8 shows its top in 79 % of scrapes).
PLATEAU_EXACT_BELOW_REQUESTS = 20
PLATEAU_EXACT_SHARE = 0.6
PLATEAU_FREED_PER_REQUEST = 0.05
# vLLM's defaults begin at 2048; nobody sets less than this
SMALLEST_BUDGET_TOKENS = 256.0
# A full budget shows steps of just about B tokens, and B is a power of two nearly everywhere.
POWER_OF_TWO_BAND = 0.05
# Tokens a step of a full budget are the same from scrape to scrape (within 0.1 % for equal
# requests); at a cap they follow the mix of prompts and decodes (1 to 3 % and more).
FULL_STEP_SPREAD = 0.005
# The window over which a limit is said to bind, and the share of its scrapes that it takes.
BINDING_WINDOW_SECONDS = 600.0
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
# of the TTFT, where most of it is waiting
WAITING_SHARE = 0.5
