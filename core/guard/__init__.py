"""The diff guard: which changes of a diff may change what is trained, measured or believed.

Where a file is Python, its two versions are compared as syntax trees: what each says about training
(*facts*: a call and its values, the place of a call in the loop, a constant with a telling name) is
collected and compared, so that moved, renamed or reformatted code says nothing new.

Begin at :mod:`core.guard.change`; ``tag`` has what it says, ``kinds`` the kinds, ``policy`` what is asked.
"""
