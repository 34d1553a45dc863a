"""How a claimed job runs: threads, the event loop, one attempt, its deadline.

Nothing here writes the end of an attempt, except atomic jobs inside their transaction.
"""
