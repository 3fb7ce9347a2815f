"""The end of a parity run of several ranks: none leaves before all have made their steps.

A rank that is gone breaks the collective that another one is still in, and a launcher that sees one
rank fail kills the others, with the records of their last step.
"""

import os
import time
from _thread import get_native_id

from . import process, ranks

WAIT_S = 30.0  # for ranks that take fewer steps than the others, or hang
LOOK_S = 0.02


def wait():
    """Say that this rank has made its steps, and wait until all ranks of the machine have."""
    rank, world, _ = ranks.find(get_native_id(), True)
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    world = int(local) if local.isdigit() else world
    if rank is None or not world or world < 2:
        return
    place = process.writer.directory
    with open(os.path.join(place, "ended.%d" % rank), "w"):
        pass
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if sum(name.startswith("ended.") for name in os.listdir(place)) >= world:
            return
        time.sleep(LOOK_S)
