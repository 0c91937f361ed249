"""Beyond one machine: many keyed streams, long streams, audits and races, on the engine that is already there.

`advance` is the pure step; `local` runs it in processes, `spark` and `streaming` on Spark 4. Nothing heavy is imported
before it is used: `pip install "treecal[spark]"` brings what they need.
"""

from treecal.keyed._shard import Step, advance, forecasts, no_state, shard_of

__all__ = ["Step", "advance", "forecasts", "no_state", "shard_of"]
