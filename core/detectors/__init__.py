"""Detectors: each knows one kind of failure, by the signs a run shows of it.

Those of probe records and of errors are asked while a run goes on and again when it has ended,
so each looks at a bounded part of the run: the first and the last steps and lines. Those of the
output (``output_*``) read lines alone, and so judge a saved log as well (``pilotage diagnose``).
"""
