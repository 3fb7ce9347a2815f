"""Bundles in words: what one holds, and how two differ."""

from __future__ import annotations

from typing import Any

from core import records_view as view
from core.body import JSON
from core.reference.comparing import variation
from core.reference.manifest import Manifest, RunFacts
from core.reference.opening import Bundle
from core.text import clean, hanging

TOLD = ("torch", "torch_xla", "numpy", "transformers", "accelerate", "lightning", "datasets")
"""Packages that are named in a summary; ``--json`` has all of them."""

_ROWS = 12  # of a table that is shown, at most


def as_json(bundle: Bundle) -> JSON:
    """The documented object of ``pilotage reference show --json``."""
    manifest = bundle.manifest
    data = manifest.to_json()
    data["project"] = {k: v for k, v in data["project"].items() if k != "lines"}
    return {
        "path": str(bundle.path),
        "sha256": bundle.sha256,
        "bytes": bundle.size,
        **data,
        "capture": [
            {"run": run.n, "of": run.of, "rank": rank, **_contents(bundle, run, rank)}
            for run in manifest.captured
            for rank in run.ranks
        ],
        "variation": variation(bundle),
        "parity": "" if manifest.captured else _no_parity(manifest),
    }


def _contents(bundle: Bundle, run: RunFacts, rank: int) -> JSON:
    """How much of what one rank's capture holds."""
    index = bundle.index(run, rank)
    begin = f"capture/{run.n}/rank{rank}/"
    sizes = {
        name.removeprefix(begin): member.bytes
        for name, member in bundle.manifest.members.items()
        if name.startswith(begin)
    }
    sketched = {
        name.removesuffix(".safetensors"): sum(
            key.startswith("sketch.") for key in bundle.tensors(begin + name)
        )
        for name in sizes
        if name.endswith(".safetensors")
    }
    return {
        "steps": view.count(index.get("steps")),
        "precision": str(index.get("precision", "")),
        "weights": len(view.rows(index.get("weights"))),
        "batches": len(view.rows(index.get("batches"))),
        "batch_source": index.get("batch_source"),
        "modules": len(view.rows(index.get("modules"))),
        "gradients": len(view.rows(index.get("gradients"))),
        "sketched": sketched,
        "why": str(index.get("why") or _too_small(sketched)),
        "bytes": sum(sizes.values()),
        "files": sizes,
    }


def _too_small(sketched: dict[str, int]) -> str:
    """What a sample in the place of a weight, or of a batch, costs; ``""`` where there is none."""
    what = [f"{n} {name}" for name in ("weights", "batches") if (n := sketched.get(name, 0))]
    if not what:
        return ""
    return (
        f"only samples of {' and '.join(what)} fitted into the budget, so a parity run can't start "
        "from them or be fed with them: record with a larger --budget."
    )


def _no_parity(manifest: Manifest) -> str:
    why = next((run.why for run in manifest.runs if run.why), "no parity run was recorded.")
    return f"no tensors, so parity can't be measured tensor by tensor: {why}"


def describe(data: JSON) -> str:
    """A bundle as text, from :func:`as_json`."""
    project, machine = data["project"], data["hardware"]
    changed = ", with changes that are not in it" if project["dirty"] else ""
    rows = [
        ("bundle", f"{data['path']}, {megabytes(data['bytes'])}, format {data['format']}"),
        ("sha256", data["sha256"]),
        ("made", f"{data['made']} by Pilotage {data['pilotage']}"),
        ("project", project["title"]),
        ("", f"commit {project['commit'][:12]}{changed}" if project["commit"] else ""),
        ("", f"tree {project['tree'][:12]}"),
        ("command", data["command"]),
        ("env", ", ".join(f"{k}={v}" for k, v in data["env"].items())),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mb']:,} MiB"),
        ("GPU", "; ".join(machine["gpu"]) or "none that nvidia-smi names"),
        ("device", data["device"]),
        ("python", _versions(data)),
        ("precision", data["precision"]),
        ("seeds", _seeds(data)),
    ]
    if data["time"]:
        rows.append(("time", f"no measure of time or dollars: {data['time']}"))
    lines = [line for name, text in rows if text for line in hanging(f"{name:<10} ", text)]
    lines += ["", "runs", *_run_rows(data)]
    lines += ["", "tensors", *_capture_rows(data)]
    return "\n".join(clean(line).rstrip() for line in lines)


def _versions(data: JSON) -> str:
    found = {name.lower().replace("-", "_"): v for name, v in data["packages"].items()}
    told = [f"{name} {found[name]}" for name in TOLD if name in found]
    return f"{data['python']}, {', '.join([*told, f'{len(found)} packages'])}"


def _seeds(data: JSON) -> str:
    how = {"environment": " (PILOTAGE_SEED, which the command has to use)"}
    return (
        ", ".join(map(str, data["seeds"])) + how.get(data["seeding"], "") if data["seeds"] else ""
    )


def _run_rows(data: JSON) -> list[str]:
    from core.reference.recording import title

    lines = []
    for run in data["runs"]:
        what = title(run["purpose"], run["of"], run["seed"])
        if run["metric"] is not None:
            what += f": {data['metric_name']} {run['metric']:g}"
        begin = f"   {run['n']:>2} {run['steps']:>7} steps {run['seconds'] / 60:>8.2f} min  "
        lines += hanging(begin, what)
    return lines


def _capture_rows(data: JSON) -> list[str]:
    lines = []
    for c in data["capture"]:
        sampled = sum(c["sketched"].values())
        kept = f"a sample of {sampled} of them" if sampled else "all of them whole"
        lines += hanging(
            f"   run {c['run']} rank {c['rank']}: ",
            f"{c['weights']} weights, {c['batches']} batches, outputs of {c['modules']} modules, "
            f"{c['gradients']} gradients, {kept}; {c['precision'] or 'own precision'}, "
            f"{megabytes(c['bytes'])} (the budget was {data['budget_mb']} MiB)",
        )
        if c["why"]:
            lines += hanging("      ", c["why"])
    if data["parity"]:
        lines += hanging("   ", data["parity"])
    own = data["variation"]
    if own["repeats"]:
        lines += hanging(
            "   ",
            f"its own variation, {own['repeats']} repeats: forward {_error(own['forward'])}, "
            f"gradients {_error(own['gradients'])} (largest relative L2)",
        )
    return lines


def megabytes(size: int) -> str:
    """Such as ``12.3 MB`` (a million bytes)."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def _error(value: Any) -> str:
    number = view.number(value)
    return "not known" if number is None else f"{number:.2g}"


# --- two of them -----------------------------------------------------------------------------


def describe_comparison(data: JSON) -> str:
    """Two bundles as text, from :func:`core.reference.comparing.compare`."""
    a, b = data["bundles"]
    lines = [
        f"a  {a['path']}  {a['title']}, {a['made']}",
        f"b  {b['path']}  {b['title']}, {b['made']}",
    ]
    lines += ["", "what is otherwise", *_difference_rows(data["differences"])]
    lines += ["", "metric"]
    for row in data["metric"]:
        seed = "" if row["seed"] is None else f" seed {row['seed']}"
        lines.append(f"   {row['name'] or 'none'}{seed}: {_value(row['a'])} | {_value(row['b'])}")
    minutes = data["minutes"]
    note = "" if minutes["measure"] else " (no measure: CUDA on the CPU)"
    lines.append(f"   minutes: {minutes['a']:.2f} | {minutes['b']:.2f}{note}")
    lines += ["", "parity runs, step by step", *_step_rows(data["parity"])]
    lines += ["", "whole runs, step by step", *_step_rows(data["curve"], _ROWS)]
    lines += ["", f"initial weights: {_weights(data['weights'])}"]
    lines += [f"first forward: {_modules(data['modules'])}", *_module_rows(data["modules"])]
    lines += ["", "they agree" if data["agree"] else "they do not agree"]
    lines += [f"   {text}" for text in data["disagree"]]
    return "\n".join(clean(line).rstrip() for line in lines)


def _difference_rows(rows: list[JSON]) -> list[str]:
    if not rows:
        return ["   nothing"]
    told = [r for r in rows if not r["what"].startswith("package ")]
    packages = [r for r in rows if r["what"].startswith("package ")]
    shown = [*told, *packages[: 2 * _ROWS]]
    lines = [f"   {r['what']}: {_value(r['a'])} | {_value(r['b'])}" for r in shown]
    if len(packages) > 2 * _ROWS:
        lines.append(f"   and {len(packages) - 2 * _ROWS} more packages (--json has them)")
    return lines


def _step_rows(part: JSON, limit: int = 64) -> list[str]:
    if part["why"]:
        return [f"   {part['why']}"]
    loss, norm = _at(part["loss"]), _at(part["grad_norm"])
    most = f"largest relative difference: loss {loss}, gradient norm {norm}"
    lines = [f"   {part['compared']} steps; {most}"]
    rows = part["rows"]
    every = max(1, -(-len(rows) // limit))
    for row in rows[::every]:
        lines.append(
            f"   {row['step']:>6}  loss {_value(row['loss a'])} | {_value(row['loss b'])}"
            f"   gradient norm {_value(row['grad_norm a'])} | {_value(row['grad_norm b'])}"
        )
    return lines


def _at(found: JSON) -> str:
    return (
        "not known"
        if found["error"] is None
        else f"{_error(found['error'])} (step {found['step']})"
    )


def _weights(part: JSON) -> str:
    if part["why"]:
        return part["why"]
    if part["equal"]:
        return f"equal, {part['compared']} tensors"
    return f"differ, most in {part['worst']} (relative L2 {_error(part['error'])})"


def _modules(part: JSON) -> str:
    if part["why"]:
        return part["why"]
    first = f"; the first beyond 1e-5 is {part['first']}" if part["first"] else ""
    worst = f" ({part['worst']})" if part["worst"] else ""
    return f"{part['compared']} modules, largest relative L2 {_error(part['error'])}{worst}{first}"


def _module_rows(part: JSON) -> list[str]:
    return [
        f"   {r['name']} ({r['type']}): {_error(r['error'])}{' (sampled)' if r['sampled'] else ''}"
        for r in part["rows"]
        if view.number(r["error"])
    ][:_ROWS]


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)[:120]
