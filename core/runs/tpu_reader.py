"""What tpu-info's library says of the TPU chips of this machine, as JSON lines.

    python tpu_reader.py INTERVAL_S        # 0: once

Run as a program of its own, in a Python that has ``tpu_info``: reading waits for a server inside
the training process and may hang, and nothing of a TPU may be loaded into a process of ours.
Python 3.8 and newer. Each line is ``{"chips": [...], "note": "..."}``; a chip is ``{chip, kind,
hbm_used_mb, hbm_total_mb, duty_pct, pids}``, in MiB and percent, without what is not known.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any


def read() -> dict[str, Any]:
    """One reading; raises whatever the library raises."""
    device = importlib.import_module("tpu_info.device")
    kind, count = device.get_local_chips()
    if kind is None or not count:
        return {"chips": [], "note": "tpu-info sees no TPU chip on this machine."}
    name = getattr(kind.value, "name", str(kind))
    chips: list[dict[str, Any]] = [{"chip": i, "kind": name} for i in range(count)]
    owners = device.get_chip_owners()
    paths = [device.chip_path(kind, i) for i in range(count)]
    if not any(path in owners for path in paths) and len(owners) == count:
        paths = sorted(owners)  # on some machines the nodes do not count from 0
    for index, chip in enumerate(chips):
        if paths[index] in owners:
            chip["pids"] = [owners[paths[index]]]
    if not owners:
        return {"chips": chips, "note": ""}  # nobody uses them, so nobody serves figures
    try:
        note = _figures(kind, chips)
    except Exception as error:  # grpc's errors are many
        details = getattr(error, "details", None)
        said = (details() if callable(details) else str(error)) or type(error).__name__
        note = f"The TPU's figures can't be read: {str(said)[:200]}."
    return {"chips": chips, "note": note}


def _figures(kind: Any, chips: list[dict[str, Any]]) -> str:
    """Fill in what the training processes serve; returns a sentence where it can't be told apart.

    Memory is measured per core and the duty cycle per chip; cores of one chip are added up. Where
    each chip has a process of its own, each serves its figures at a port of its own.
    """
    metrics = importlib.import_module("tpu_info.metrics")
    ports = os.environ.get("TPU_RUNTIME_METRICS_PORTS", "").replace(" ", "").split(",")
    usages: list[Any] = []
    for port in [p for p in ports if p.isdigit()][: len(chips)] or ["8431"]:
        usages += metrics.get_chip_usage(kind, addr=f"localhost:{port}")
    cores = max(1, getattr(kind.value, "devices_per_chip", 1))
    ids = [u.device_id for u in usages]
    if len(set(ids)) < len(ids):  # each process counts from 0: then only the order tells
        if len(usages) != len(chips) * cores:
            return "The TPU's figures can't be put down to chips: two have the same number."
        ids = list(range(len(usages)))
    for index, chip in enumerate(chips):
        own = [u for u, number in zip(usages, ids) if number // cores == index]  # noqa: B905
        if own:
            chip["hbm_used_mb"] = round(sum(u.memory_usage for u in own) / 1048576, 1)
            chip["hbm_total_mb"] = round(sum(u.total_memory for u in own) / 1048576, 1)
            chip["duty_pct"] = round(max(u.duty_cycle_pct for u in own), 2)
    return ""


def main() -> None:
    """Entry point of the process."""
    del sys.path[0]  # our own directory: nothing in it may stand for a module of the library
    interval = float(sys.argv[1])
    while True:
        try:
            said = read()
        except ImportError as error:
            if error.name == "tpu_info":
                said = {"chips": [], "note": "missing"}
            else:
                said = {"chips": [], "note": f"tpu-info can't be loaded: {str(error)[:200]}."}
        print(json.dumps(said), flush=True)
        if interval <= 0:
            return
        time.sleep(interval)


if __name__ == "__main__":
    main()
