"""Two bundles beside each other: where they were made, what they measured, whether they agree.

They *agree* where the parity runs do: the same initial weights, outputs of the modules in the first
forward, loss and gradient norm in each of the K steps, within the criteria's default tolerances
(``core.criteria``), and where both have a metric, the goal's. Machine, packages and minutes
are told and judged by nobody.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from core import records_view as view
from core.body import JSON
from core.criteria import Criteria
from core.events import RunSignalled, RunStepped
from core.reference.manifest import BundleError, Manifest, RunFacts
from core.reference.opening import Bundle
from core.reference.safetensors import TensorError, TensorFile, error_between

MAX_ROWS = 200
"""Steps of the whole runs that are listed; of more, each n-th. The errors are of all of them."""

MODULE_RTOL = 1e-5
"""Relative L2 of a module's output in float32: the oracle prototype's bound (start_rtol's too)."""

MAX_TENSORS = 4_000
"""Tensors of one kind that are compared; what is beyond is said."""


def compare(first: Path, second: Path) -> JSON:
    """What two bundles have in common and what not; ``agree`` says whether they do.

    Raises :class:`BundleError`.
    """
    with Bundle(first) as a, Bundle(second) as b:
        of_weights, of_modules = _tensors(a, b)
        result: JSON = {
            "bundles": [_name(a), _name(b)],
            "differences": list(_differences(a.manifest, b.manifest)),
            "metric": _metrics(a.manifest, b.manifest),
            "minutes": {
                "a": a.manifest.minutes,
                "b": b.manifest.minutes,
                "measure": not (a.manifest.time or b.manifest.time),
            },
            "parity": _steps(a, b, "parity", "reference"),
            "curve": _steps(a, b, "reference", ""),
            "weights": of_weights,
            "modules": of_modules,
        }
    result["disagree"] = list(_disagreements(result, a.manifest))
    result["agree"] = not result["disagree"]
    return result


def _name(bundle: Bundle) -> JSON:
    manifest = bundle.manifest
    return {
        "path": str(bundle.path),
        "sha256": bundle.sha256,
        "title": manifest.project.title,
        "made": manifest.made,
        "tree": manifest.project.tree,
    }


def _differences(a: Manifest, b: Manifest) -> Iterator[JSON]:
    """What is otherwise in the two manifests, without what was measured."""
    pairs: list[tuple[str, Any, Any]] = [
        ("project", a.project.title, b.project.title),
        ("tree", a.project.tree, b.project.tree),
        ("commit", a.project.commit, b.project.commit),
        ("changes that are not in the tree", a.project.dirty, b.project.dirty),
        ("command", a.command, b.command),
        ("device", a.device, b.device),
        ("python", a.python, b.python),
        ("steps of a parity run", a.k, b.k),
        ("precision", a.precision, b.precision),
        ("seeds", a.seeds, b.seeds),
        ("CPU", a.hardware.cpu, b.hardware.cpu),
        ("cores", a.hardware.cores, b.hardware.cores),
        ("memory, MiB", a.hardware.memory_mb, b.hardware.memory_mb),
        ("GPU", a.hardware.gpu, b.hardware.gpu),
    ]
    for what, left, right in (("env", a.env, b.env), ("package", a.packages, b.packages)):
        pairs += [
            (f"{what} {name}", left.get(name), right.get(name)) for name in sorted({*left, *right})
        ]
    yield from ({"what": w, "a": x, "b": y} for w, x, y in pairs if x != y)


def _metrics(a: Manifest, b: Manifest) -> list[JSON]:
    """The metric of each whole run; the seeds of the one beside those of the other."""
    left, right = ({r.seed: r for r in m.runs if r.purpose == "reference"} for m in (a, b))
    rows = []
    for seed in sorted({*left, *right}, key=lambda s: (s is not None, s or 0)):
        x, y = left.get(seed), right.get(seed)
        rows.append(
            {
                "name": a.metric_name or b.metric_name,
                "seed": seed,
                "a": x.metric if x else None,
                "b": y.metric if y else None,
                "minutes a": x.seconds / 60 if x else None,
                "minutes b": y.seconds / 60 if y else None,
            }
        )
    return rows


# --- steps -----------------------------------------------------------------------------------


def _run(bundle: Bundle, purpose: str, of: str) -> RunFacts | None:
    found = [r for r in bundle.manifest.runs if (r.purpose, r.of) == (purpose, of)]
    return found[0] if found else None


def _trained(bundle: Bundle, run: RunFacts) -> list[JSON]:
    """The step records of the process that trains (rank 0, or the first that stepped)."""
    rows: list[JSON] = []
    for _, body, _ in bundle.events(run):
        if isinstance(body, RunStepped):
            rows += body.records
    who = next(
        ((r.get("pid"), r.get("tid")) for r in rows if r.get("rank") in (None, 0)), (None, None)
    )
    return [r for r in rows if (r.get("pid"), r.get("tid")) == who]


def _steps(a: Bundle, b: Bundle, purpose: str, of: str) -> JSON:
    """Loss and gradient norm of one run of each, step by step."""
    left, right = _run(a, purpose, of), _run(b, purpose, of)
    if left is None or right is None:
        return {"compared": 0, "rows": [], "why": "one of them has no such run"}
    ours = {n: r for r in _trained(a, left) if (n := view.count(r.get("n"))) is not None}
    theirs = {n: r for r in _trained(b, right) if (n := view.count(r.get("n"))) is not None}
    both = sorted(set(ours) & set(theirs))
    every = max(1, -(-len(both) // MAX_ROWS))
    result: JSON = {
        "compared": len(both),
        "steps": [len(ours), len(theirs)],
        "every": every,
        "why": "" if both else "the probe saw no steps in one of them",
    }
    for field in ("loss", "grad_norm"):
        pairs = [(n, _pair(ours[n], theirs[n], field)) for n in both]
        errors = [(n, relative(*p)) for n, p in pairs if p is not None]
        worst = max(errors, key=lambda e: e[1], default=None)
        result[field] = {
            "compared": len(errors),
            "error": _json(worst[1]) if worst else None,
            "step": worst[0] if worst else None,
        }
    result["rows"] = [
        {
            "step": n,
            **{
                f"{field} {side}": _json(view.number(row.get(field)))
                for field in ("loss", "grad_norm")
                for side, row in (("a", ours[n]), ("b", theirs[n]))
            },
        }
        for n in both[::every]
    ]
    return result


def _pair(mine: JSON, other: JSON, field: str) -> tuple[float, float] | None:
    x, y = view.number(mine.get(field)), view.number(other.get(field))
    return None if x is None or y is None else (x, y)


def relative(a: float, b: float) -> float:
    """``|a - b| / max(|a|, |b|)``; 0 for two NaN, or equal infinities; infinite for one."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))


def _json(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


# --- tensors ---------------------------------------------------------------------------------


def _tensors(a: Bundle, b: Bundle) -> tuple[JSON, JSON]:
    """Initial weights, and outputs of the modules in the first forward, of rank 0."""
    left, right = _run(a, "parity", "reference"), _run(b, "parity", "reference")
    for bundle, run in ((a, left), (b, right)):
        if run is None or 0 not in run.ranks:
            why = f"{bundle.name} has no tensors"
            return {"compared": 0, "why": why}, {"compared": 0, "rows": [], "why": why}
    assert left is not None and right is not None
    place = Path(tempfile.mkdtemp(prefix="pilotage-compare-"))
    try:
        a.extract(left, place / "a")
        b.extract(right, place / "b")
        ranks = place / "a" / "rank0", place / "b" / "rank0"
        return _weights(*ranks), _modules(*ranks, a.index(left, 0), b.index(right, 0))
    except (OSError, TensorError) as err:
        raise BundleError(f"The tensors of the bundles can't be compared: {err}.") from err
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _weights(a: Path, b: Path) -> JSON:
    if not all((rank / "weights.safetensors").is_file() for rank in (a, b)):
        return {"compared": 0, "why": "one of them has no weights"}
    with TensorFile(a / "weights.safetensors") as x, TensorFile(b / "weights.safetensors") as y:
        both = [key for key in x.tensors if key in y.tensors]
        errors = {
            key: 0.0 if x.raw(key) == y.raw(key) else _error(x, y, key)
            for key in both[:MAX_TENSORS]
        }
        known = {key: e for key, e in errors.items() if e is not None}
        worst = max(known, key=lambda k: known[k], default="")
        return {
            "compared": len(known),
            "equal": bool(known) and not any(known.values()) and len(known) == len(errors),
            "error": _json(known.get(worst)),
            "worst": worst,
            "unlike": [key for key, e in errors.items() if e is None][:50],
            "missing": [key for key in x.tensors if key not in y.tensors][:50],
            "extra": [key for key in y.tensors if key not in x.tensors][:50],
            "left_out": max(0, len(both) - MAX_TENSORS),
            "why": "" if both else "no tensor has the same name in both",
        }


def _error(x: TensorFile, y: TensorFile, key: str) -> float | None:
    found = error_between(x, y, key)
    return None if found is None else found[0]


def _modules(a: Path, b: Path, index_a: JSON, index_b: JSON) -> JSON:
    if not all((rank / "forward.safetensors").is_file() for rank in (a, b)):
        return {"compared": 0, "rows": [], "why": "one of them has no outputs of modules"}
    rows: list[JSON] = []
    theirs = {_key(m): m for m in _calls(index_b)}
    mine = list(_calls(index_a))
    with TensorFile(a / "forward.safetensors") as x, TensorFile(b / "forward.safetensors") as y:
        for module in mine[:MAX_TENSORS]:
            other = theirs.get(_key(module))
            if other is None:
                continue
            errors = list(_outputs(x, y, module, other, index_a, index_b))
            if errors:
                rows.append(
                    {
                        "i": module.get("i"),
                        "name": str(module.get("name", "")),
                        "type": str(module.get("type", "")),
                        "error": max(e for e, _ in errors),
                        "sampled": any(sampled for _, sampled in errors),
                    }
                )
    worst = max(rows, key=lambda r: r["error"], default=None)
    beyond = [r for r in rows if not r["error"] <= MODULE_RTOL]
    return {
        "compared": len(rows),
        "uncompared": len(mine) - len(rows),
        "error": _json(worst["error"]) if worst else None,
        "worst": worst["name"] if worst else "",
        "first": beyond[0]["name"] if beyond else "",
        "rows": [{**r, "error": _json(r["error"])} for r in rows],
        "why": "" if rows else "no module of the same name has an output in both",
    }


def _calls(index: JSON) -> Iterator[JSON]:
    """The calls of modules in an index, each with ``nth``: how often its name was called before."""
    seen: dict[str, int] = {}
    for module in view.rows(index.get("modules")):
        name = f"{module.get('root')}.{module.get('name')}"
        seen[name] = seen.get(name, -1) + 1
        yield {**module, "nth": seen[name]}


def _key(module: JSON) -> tuple[str, int]:
    return f"{module.get('root')}.{module.get('name')}", int(module["nth"])


def _outputs(
    x: TensorFile, y: TensorFile, mine: JSON, other: JSON, index_a: JSON, index_b: JSON
) -> Iterable[tuple[float, bool]]:
    paths = {str(o.get("path")): str(o.get("key")) for o in view.rows(other.get("outputs"))}
    for output in view.rows(mine.get("outputs")):
        path = str(output.get("path"))
        if path not in paths:
            continue
        left = _stored(x, index_a, str(output.get("key")))
        right = _stored(y, index_b, paths[path])
        if not left or not right:
            continue
        sketched = left.startswith("sketch.")
        if sketched != right.startswith("sketch."):
            continue  # a sample here, the whole there: another budget
        found = error_between(x, y, left, right)
        if found is not None:
            yield found[0], found[1] or sketched


def _stored(file: TensorFile, index: JSON, key: str) -> str:
    """The key under which a tensor, or the sketch of it, is in a file; ``""`` where it is not."""
    key = str(view.table(index.get("aliases")).get(key, key))
    return next((k for k in (key, f"sketch.{key}") if k in file.tensors), "")


# --- the answer ------------------------------------------------------------------------------


def _disagreements(result: JSON, manifest: Manifest) -> Iterator[str]:
    criteria = Criteria()
    weights, modules, parity = result["weights"], result["modules"], result["parity"]
    for what, part in (("initial weights", weights), ("outputs of modules", modules)):
        if part["why"]:
            yield f"The {what} could not be compared: {part['why']}."
    if weights.get("missing") or weights.get("extra") or weights.get("unlike"):
        names = [*weights["missing"], *weights["extra"], *weights["unlike"]]
        yield f"The initial weights are not of one model: {', '.join(names[:5])}."
    if _above(weights.get("error"), criteria.start_rtol):
        yield f"The initial weights differ, most in {weights['worst']} ({weights['error']:.2g})."
    if modules.get("first"):
        yield f"The first module whose output differs is {modules['first']}."
    if parity["why"]:
        yield f"The parity runs could not be compared: {parity['why']}."
    for field, rtol, name in (
        ("loss", criteria.trajectory_rtol, "loss"),
        ("grad_norm", criteria.grad_rtol, "gradient norm"),
    ):
        found = parity.get(field, {})
        if _above(found.get("error"), rtol):
            yield (
                f"The {name} of the parity runs differs, most in step {found['step']} "
                f"(relative {found['error']:.2g}, tolerance {rtol:g})."
            )
    for row in result["metric"]:
        x, y = row["a"], row["b"]
        if x is not None and y is not None and relative(x, y) > criteria.goal_rtol:
            seed = "" if row["seed"] is None else f" with seed {row['seed']}"
            yield (
                f"The {manifest.metric_name or 'metric'}{seed} differs: {x:g} and {y:g} "
                f"(tolerance {criteria.goal_rtol:g} relative)."
            )


def _above(error: object, rtol: float) -> bool:
    value = view.number(error)
    return value is not None and not value <= rtol


def variation(bundle: Bundle) -> JSON:
    """How far the reference is from itself: the largest errors of its repeats, by what was compared.

    From the probe's records ``start``, ``forward`` and ``gradients`` of the runs that replayed the
    reference against its own tensors; ``repeats`` counts them, None is *not known*.
    """
    repeats = [r for r in bundle.manifest.runs if r.of == "reference repeat"]
    worst: dict[str, float] = {}
    for run in repeats:
        for _, body, _ in bundle.events(run):
            for record in body.records if isinstance(body, RunSignalled) else []:
                for name, error in _errors(record):
                    worst[name] = max(worst.get(name, 0.0), error)
    return {
        "repeats": len(repeats),
        **{name: _json(worst.get(name)) for name in ("start", "forward", "gradients")},
    }


def _errors(record: JSON) -> Iterator[tuple[str, float]]:
    kind = record.get("k")
    if kind == "start":
        values: list[object] = [record.get("natural_error")]
    elif kind == "forward":
        values = [m.get("error") for m in view.rows(record.get("modules"))]
    elif kind == "gradients":
        values = [record.get("error")]
    else:
        return
    for value in values:
        if (error := view.number(value)) is not None:
            yield str(kind), error
