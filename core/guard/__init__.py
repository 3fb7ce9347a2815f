"""The diff guard: which changes of a diff may change what is trained, measured or believed.

Where a file is Python, its two versions are compared as syntax trees: what each says about training
(*facts*: a call and its values, the place of a call in the loop, a constant with a telling name) is
collected and compared, so that moved, renamed or reformatted code says nothing new.
"""

from core.guard.change import guard_change as guard_change
from core.guard.change import guard_patch as guard_patch
from core.guard.kinds import KINDS as KINDS
from core.guard.policy import Policy as Policy
from core.guard.tag import Tag as Tag
