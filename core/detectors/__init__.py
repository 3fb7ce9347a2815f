"""Detectors: each knows one kind of failure, by the signs a run shows of it.

They are asked while a run goes on and again when it has ended, so each looks at a bounded
part of the run: the first and the last steps, the first and the last lines.
"""
