"""Facts from calls: the known ones by their arguments, others by arguments with a telling name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.guard.kinds import setting_kind
from core.guard.known_calls import CLASS_DEFAULTS, KNOWN, SIGNATURES, Known
from core.guard.tag import Arg, Fact
from core.guard.values import DEVICE_KEYWORDS, Values, plain
from core.risk.module import dotted

_EVALUATION = re.compile(
    r"(?:^|[^a-zA-Z])(?:val|valid|validation|validate|test|testing|eval|evaluate|evaluation|dev)(?:[^a-zA-Z]|$)"
    r"|(?:^|_)(?:val|valid|test|eval)(?:set|loader|data|ds|dl)"
)
_DATA_KINDS = ("data subset", "dataset", "shuffle", "drop_last", "sampler")
_TENSOR_FIRST = ("parameters", "tensor", "input")
_LOOSE = ("save", "select", "take", "skip", "shard", "freeze", "track", "Pad", "accuracy")
_INITIALISERS = ("normal_", "uniform_", "zeros_", "ones_", "zero_", "constant_", "eye_")
_WEIGHTS = re.compile(r"weight|bias|data|embed|param")
_SAVERS = ("torch", "torch_xla", "safetensors", "accelerate", "transformers")
_SHOWING = (
    "print",
    "info",
    "debug",
    "warning",
    "format",
    "write",
    "log",
    "set_postfix",
    "add_argument",
)


def called(call: ast.Call) -> str:
    """The last part of what is called: ``clip_grad_norm_`` of ``nn.utils.clip_grad_norm_(...)``."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def scope_name(values: Values, node: ast.AST) -> str:
    """The name of the function around a node, ``""`` for the module."""
    return getattr(values.scope(node), "name", "")


def owner_of(values: Values, node: ast.AST) -> str:
    """The variable, attribute or keyword that an expression is for; ``""`` where there is none near."""
    at = node
    for _ in range(5):
        parent = values.module.parents.get(at)
        if isinstance(parent, ast.Assign):
            return values.text(parent.targets[0])
        if isinstance(parent, ast.AnnAssign):
            return values.text(parent.target)
        if isinstance(parent, ast.keyword) and parent.arg:
            return parent.arg
        if parent is None or isinstance(parent, ast.stmt):
            return ""
        at = parent
    return ""


def is_evaluation(*texts: str) -> bool:
    """Whether one of the names tells of validation or test data."""
    return any(_EVALUATION.search(plain(t).lower()) for t in texts if t)


def call_facts(values: Values) -> Iterator[Fact]:
    """The facts of every call of a file."""
    for call in values.module.calls:
        name = called(call)
        known = KNOWN.get(name)
        if known is None and name[:1].isupper() and any(k.arg == "lr" for k in call.keywords):
            known = KNOWN["Lion"]  # an optimizer of the project's own
        if known is not None and _fits(values, call, name, known):
            yield from _known_fact(values, call, name, known)
        elif name == "seed" and values.module.resolve(call.func):
            value = values.text(call.args[0]) if call.args else ""
            source = values.module.resolve(call.func)[0]
            args = {"of": Arg("seed", source), "seed": Arg("seed", value)}
            yield Fact(
                "seed", "seed", source, call.lineno, args, "gone", "", scope_name(values, call)
            )
        elif name not in _SHOWING:
            yield from _settings(values, call, name)


def _fits(values: Values, call: ast.Call, name: str, known: Known) -> bool:
    """Whether a call with a known last name is likely that known callable."""
    resolved = values.module.resolve(call.func)
    if isinstance(call.func, ast.Name):
        return bool(resolved) or name not in _LOOSE
    if resolved:
        if name in ("save", "save_model"):
            return resolved[0].split(".")[0] in _SAVERS
        if name in ("load_model", "take", "select", "tril", "triu") and resolved[0].startswith(
            "numpy"
        ):
            return False
        return (
            not resolved[0].startswith("torch.cuda") or name == "autocast" or name == "GradScaler"
        )
    base = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name == "save" and base in ("xm", "torch"):
        return True  # in a file in mid-edit
    if name in _INITIALISERS:
        return bool(_WEIGHTS.search(base)) and "grad" not in base
    return known.method or name[:1].isupper()


def _known_fact(values: Values, call: ast.Call, name: str, known: Known) -> Iterator[Fact]:
    module = values.module
    resolved = module.resolve(call.func)
    names = SIGNATURES.get(name, known.names)
    is_method = isinstance(call.func, ast.Attribute) and not resolved
    base = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if is_method and names[:1] and names[0] in _TENSOR_FIRST and "accelerator" not in base:
        names = names[1:]
    given = {}
    for at, value in enumerate(call.args):
        given[names[at] if at < len(names) else f"a{at}"] = value
    given.update({k.arg: k.value for k in call.keywords if k.arg})
    args: dict[str, Arg] = {"class": Arg(known.kind, name.removesuffix("_"))}
    for arg, default in {**known.defaults, **CLASS_DEFAULTS.get(name, {})}.items():
        if kind := known.kinds.get(arg, known.other):
            args[arg] = Arg(setting_kind(arg) if kind == "*" else kind, default)
    for arg, node in given.items():
        if arg in known.ignored or arg in DEVICE_KEYWORDS:
            continue
        kind = known.kinds.get(arg, known.other)
        kind = setting_kind(arg) if kind == "*" else kind
        if kind:
            args[arg] = Arg(kind, values.text(node))
    scope, owner = scope_name(values, call), owner_of(values, call)
    kind, presence, label = known.kind, known.presence, name
    if known.group == "loader":
        _loader(values, given, args)
    elif known.group == "autocast":
        _autocast(values, given, resolved, args)
    elif known.group == "reduce":
        args["class"] = Arg("reduce", "mesh_reduce" if "mesh" in name else "reduce")
        if name == "all_reduce" and not base:
            return
    elif known.group == "seed":
        if "cuda" in base:
            return
        args.pop("class")
        args["of"] = Arg("seed", "torch" if name in ("manual_seed", "set_rng_state") else name)
        again = values.module.loop(call) is not None and "enerator" not in ast.unparse(call.func)
        args["when"] = Arg("seed", "in a loop" if again else "once")
        if again:
            label, presence = f"{name} in a loop", "sure"
    elif name == "Compose" and isinstance(
        first := next(iter(given.values()), None), ast.List | ast.Tuple
    ):
        steps = ", ".join(called(e) for e in first.elts if isinstance(e, ast.Call))
        args["steps"] = Arg("dataset", steps)
    elif known.group == "save":
        kind, presence = _saving(values, given, args, presence)
    elif known.group == "requires_grad" and isinstance(call.func, ast.Attribute):
        args["of"] = Arg("frozen", values.text(call.func.value))
    elif known.group == "optimizer" and isinstance(given.get("params"), ast.Name):
        made = values.made_by(given["params"].id, values.scope(call))  # type: ignore[attr-defined]
        if made is not None:
            args["params"] = Arg("parameter groups", values.text(made))
    elif known.group == "load" and is_evaluation(scope):
        args.pop("class")
    first = next(iter(given.values()), None)
    evaluated = is_evaluation(owner, scope) or (
        known.group in ("loader", "subset", "split") and is_evaluation(values.text(first)[:80])
    )
    if evaluated:
        kind = "evaluation data" if kind in _DATA_KINDS else kind
        args = {
            a: v._replace(kind="evaluation data") if v.kind in _DATA_KINDS else v
            for a, v in args.items()
        }
    yield Fact(known.group, kind, label, call.lineno, args, presence, owner, scope)


def _loader(values: Values, given: dict[str, ast.expr], args: dict[str, Arg]) -> None:
    """A sampler decides the order in place of ``shuffle``, and a batch sampler the batches."""
    sampler = given.get("sampler")
    if sampler is not None and args["sampler"].text != "None":
        args.pop("shuffle", None)
        made: ast.expr | None = sampler
        if isinstance(sampler, ast.Name):
            made = values.made_by(sampler.id, values.scope(sampler))
        if isinstance(made, ast.IfExp):
            made = made.body if isinstance(made.body, ast.Call) else made.orelse
        if isinstance(made, ast.Call):
            name = called(made)
            asked = next((k.value for k in made.keywords if k.arg == "shuffle"), None)
            default = {
                "DistributedSampler": "True",
                "RandomSampler": "True",
                "SequentialSampler": "False",
            }
            if name in default:
                shuffled = values.text(asked) if asked is not None else default[name]
                args["shuffle"] = Arg("shuffle", shuffled)
        # That there is one is told by the sampler's own fact.
        args.pop("sampler")
    if "batch_sampler" in given and args["batch_sampler"].text != "None":
        for arg in ("batch_size", "shuffle", "drop_last", "sampler"):
            args.pop(arg, None)


def _autocast(
    values: Values, given: dict[str, ast.expr], resolved: tuple[str, ...], args: dict[str, Arg]
) -> None:
    """Without a dtype, autocast is fp16 on CUDA and bf16 on XLA and the CPU."""
    if "dtype" not in args:
        device = values.text(given.get("device")).lower()
        cuda = "cuda" in device or any("torch.cuda" in r for r in resolved)
        args["dtype"] = Arg("dtype", "torch.float16" if cuda else "torch.bfloat16")


def _saving(
    values: Values, given: dict[str, ast.expr], args: dict[str, Arg], presence: str
) -> tuple[str, str]:
    """What is saved: the keys of a dictionary, else the expression."""
    args["class"] = Arg("checkpoint", "save")
    made = given.get("obj")
    if isinstance(made, ast.Name):
        made = values.made_by(made.id, values.scope(made)) or made
    if isinstance(made, ast.Call) and made.args and isinstance(made.args[0], ast.Dict):
        made = made.args[0]  # to_host({...})
    if isinstance(made, ast.Dict):
        args.pop("obj", None)
        for key, value in zip(made.keys, made.values, strict=True):
            if isinstance(key, ast.Constant):
                args[repr(key.value)] = Arg("checkpoint", values.text(value))
    elif made is not None:
        args["obj"] = Arg("checkpoint", values.text(made))
    return "checkpoint", presence


def _settings(values: Values, call: ast.Call, name: str) -> Iterator[Fact]:
    """``build(model, lr=0.1)``: only a changed value is told, since the default is not known."""
    if name == "add_argument":
        return
    scope = ""
    for keyword in call.keywords:
        kind = setting_kind(keyword.arg) if keyword.arg else ""
        if not kind or keyword.arg in DEVICE_KEYWORDS:
            continue
        scope = scope or scope_name(values, call)
        text = values.text(keyword.value)
        sure = not (kind in ("dataset", "data subset", "architecture") and not text[:1].isdigit())
        yield Fact(
            "keyword",
            kind,
            f"{name}({keyword.arg}=)",
            keyword.value.lineno,
            {"value": Arg(kind, text, sure)},
            "guess" if kind in ("clipping", "masks", "dropout", "drop_last") else "quiet",
            f"{name}.{keyword.arg}",
            scope,
        )
