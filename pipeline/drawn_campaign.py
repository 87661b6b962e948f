"""Runs a campaign of drawn runs: seeds in Spark tasks, whose rows the driver writes a chunk at a time.

Executors need no shared file system. What a killed driver loses is the chunk that ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipeline.drawn_results import ResultsDirectory
from pipeline.drawn_seeds import run_part
from sim.seed_range import Seeds
from sim.swarm.campaign import Campaign
from sim.swarm.job import SwarmJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So that a core has work while another ends its last seed.
TASKS_A_CORE = 2
# A task starts in about a second, a seed takes as long: more seeds a task cost less, and a kill loses more of them.
MOST_SEEDS_A_TASK = 16


def run_drawn(spark: SparkSession, *, job: SwarmJob, seeds: Seeds, directory: ResultsDirectory) -> Campaign:
    """Run the seeds that the directory has not yet, and return the sum of all. Ctrl-C ends it early: see the sum."""
    campaign = Campaign(seeds)
    for seed, row in sorted(directory.rows.items()):
        if seed in seeds:
            campaign.add(row)
    left = [seed for seed in seeds if seed not in directory.rows]
    tasks = max(1, spark.sparkContext.defaultParallelism) * TASKS_A_CORE
    try:
        for chunk in chunks(left, tasks):
            _run_chunk(spark, job, chunk, tasks, campaign, directory)
    except KeyboardInterrupt:
        campaign.is_interrupted = True
    # A seed without a row would count as one that held.
    assert campaign.is_interrupted or campaign.count == len(seeds), (campaign.count, len(seeds))
    return campaign


def chunks(seeds: Sequence[int], tasks: int) -> Iterator[Sequence[int]]:
    """Yields the seeds in parts: a seed a task first, so that rows are there soon, then twice as many each time."""
    assert tasks >= 1, tasks
    begin, seeds_a_task = 0, 1
    while begin < len(seeds):
        yield seeds[begin : begin + tasks * seeds_a_task]
        begin += tasks * seeds_a_task
        seeds_a_task = min(2 * seeds_a_task, MOST_SEEDS_A_TASK)


def _run_chunk(
    spark: SparkSession,
    job: SwarmJob,
    chunk: Sequence[int],
    tasks: int,
    campaign: Campaign,
    directory: ResultsDirectory,
) -> None:
    """Run the seeds of a chunk, and add their rows to the directory and to the sum."""
    part = spark.sparkContext.parallelize(chunk, min(tasks, len(chunk)))
    # What is collected of a task is one attempt's: a task that runs again counts once.
    rows = [json.loads(line) for line in part.mapPartitions(lambda seeds: run_part(job, seeds)).collect()]
    assert sorted(row["seed"] for row in rows) == list(chunk), (chunk[0], len(chunk), len(rows))
    directory.add(rows)
    for row in rows:
        campaign.add(row)
