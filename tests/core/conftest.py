"""Property tests of the rules: no deadline, since this machine may be busy with something else."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rules", deadline=None, max_examples=60)
settings.load_profile("rules")
