"""Where a project prints or writes its own metric, read from its code; ranked, best first.

The score of a place: the metric's kind (a quality measure 30, a perplexity or error 25, a loss 10),
the phase (test 30, validation 25, best or final 15, training -25), evaluation code 15, after the
loops 10, in the loop over batches -20, in the started file 5. Later in the file wins a tie.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from core.init import metric_names as names
from core.init.facts import Entry, MetricPlace
from core.init.result_paths import PathReader, dict_keys, writes
from core.init.script import Script, Scripts
from core.init.templates import NUMBER, Hole, Part, last_line, parts_of, pattern_for, sample_line
from core.readings.training import read_line
from core.risk.module import FUNCTIONS, Module, constant, dotted, keyword
from core.text import clean

PRINTS = {"print": 0, "info": 0, "warning": 0, "warn": 0, "debug": 0, "error": 0, "write": 0}
PRINTS |= {"echo": 0, "secho": 0, "rank_zero_info": 0, "log_str": 0, "print_log": 0, "log": 0}
"""Functions and methods that write a line, and the argument at which its text begins."""

MAX_PLACES = 40
"""Places that are kept."""

_EVALUATES = re.compile(r"(?i)(?:^|_)(?:eval|evaluate|evaluation|valid|validate|validation|test)")


def find_metrics(entry: Entry | None, scripts: Scripts) -> list[MetricPlace]:
    """The places in the file that ``entry`` starts and in what it imports; the best first."""
    if entry is None or not entry.script:
        return []
    found: list[MetricPlace] = []
    paths = PathReader(entry, scripts)
    for script in scripts.closure(entry.script):
        near = 5 if script.path == entry.script else 0
        for place in (
            *_printed(script),
            *_trainer(script, entry),
            *_lightning(script),
            *_written(script, paths),
        ):
            found.append(replace(place, score=place.score + near))
        if len(found) > 20 * MAX_PLACES:
            break
    best: dict[tuple[str, ...], MetricPlace] = {}
    for place in found:
        key = (place.pattern, place.reader, place.key, place.file, place.source)
        if key not in best or place.score >= best[key].score:
            best[key] = place
    lines = {place.source: number for number, place in enumerate(best.values())}
    ordered = sorted(best.values(), key=lambda p: (-p.score, -lines[p.source]))
    return [_told_apart(place, ordered) for place in ordered[:MAX_PLACES]]


def _told_apart(place: MetricPlace, others: list[MetricPlace]) -> MetricPlace:
    """The place with a pattern that no other line of the program matches, where that can be."""
    if not place.pattern:
        return place
    foreign = [p for p in others if p.line and p.source != place.source]
    clash = [p for p in foreign if re.search(place.pattern, p.line)]
    if not clash:
        return place
    if re.match(place.pattern, place.line):
        anchored = "^" + place.pattern
        if not any(re.search(anchored, p.line) for p in foreign):
            return replace(place, pattern=anchored)
    note = f"The pattern also matches what {clash[0].source} prints: the last line counts."
    return replace(place, notes=(*place.notes, note))


# --- printed -------------------------------------------------------------------------------------


def _printed(script: Script) -> Iterator[MetricPlace]:
    module = script.module
    for call in module.calls:
        func = call.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name not in PRINTS or _is_scalar_log(func):
            continue
        for line in last_line(parts_of(call, PRINTS[name])):
            yield from _line(script, call, line)
        if len(call.args) == 1 and (keys := dict_keys(module, _json_text(module, call.args[0]))):
            yield from _dict_line(script, call, keys)


def _is_scalar_log(func: ast.expr) -> bool:
    """``self.log("val_loss", x)``, ``wandb.log({...})``: nothing of it is printed as it stands."""
    if not isinstance(func, ast.Attribute) or func.attr != "log":
        return False
    return dotted(func.value) in ("self", "wandb", "run", "mlflow", "self.logger", "accelerator")


def _line(script: Script, call: ast.Call, line: list[Part]) -> Iterator[MetricPlace]:
    said = ""  # the name of the value before, for "Accuracy: 97/100 (97%)"
    text = "".join(p for p in line if isinstance(p, str))
    for index, part in enumerate(line):
        if not isinstance(part, Hole):
            continue
        before = line[index - 1] if index and isinstance(line[index - 1], str) else ""
        after = line[index + 1] if index + 1 < len(line) else ""
        assert isinstance(before, str)
        name = _said(before)
        follows = after if isinstance(after, str) else ""
        percent = follows.startswith("%") or part.form.endswith("%") or _times_100(part.node)
        if follows.startswith("/") and not percent:
            said = name  # a count out of another
            continue
        if not names.is_metric(name):
            if said and percent:
                name = said
            elif not name and names.is_metric(_expression(part.node)):
                name = names.tidy(_expression(part.node))
            elif names.is_metric(_expression(part.node)) and not _is_count(name):
                name = name or names.tidy(_expression(part.node))
            else:
                continue
        if not names.is_metric(name) and not names.is_metric(_expression(part.node)):
            continue
        pattern = pattern_for(line, part)
        if pattern:
            yield _place(script, call, name, text, part, percent, pattern, line)


def _place(
    script: Script,
    call: ast.Call,
    name: str,
    text: str,
    hole: Hole,
    percent: bool,
    pattern: str,
    line: list[Part],
) -> MetricPlace:
    kind = name if names.is_metric(name) else _expression(hole.node)
    function = _function(script.module, call)
    phase = _phase(name, text, function)
    full = name if not phase or names.has_phase(name) else f"{phase} {name}"
    lower = names.lower_is_better(kind)
    share = names.is_share(kind)
    return MetricPlace(
        name=clean(full[:60]),
        source=f"{script.path}:{call.lineno}",
        higher_is_better=not lower,
        points=1.0 if percent or names.is_percent(name) else 100.0 if share else 0.0,
        pattern=pattern,
        line=clean(sample_line(line, hole)[:200]),
        score=names.worth(full if names.is_metric(full) else f"{full} {kind}")
        + _where(script, call),
    )


def _said(before: str) -> str:
    """The words right before a value: ``accuracy`` of ``"epoch 3, accuracy "``."""
    piece = re.split(r"[,;|()\[\]{}\n]|\s-+\s|:\s(?=\S)", before[-120:])
    match = re.search(r"([A-Za-z][\w@/ .+-]{0,50}?)\s*(?:[:=]|is|of|->|\s)*\s*$", piece[-1])
    return names.tidy(" ".join(match[1].split()[-4:])) if match else ""


def _is_count(name: str) -> bool:
    counts = {
        "nan",
        "inf",
        "epoch",
        "step",
        "steps",
        "iter",
        "batch",
        "time",
        "lr",
        "took",
        "samples",
        "in",
    }
    return bool(set(names.words(name)) & counts)


def _expression(node: ast.AST) -> str:
    """The names in the expression of a value: ``test_acc`` of ``test_acc / len(loader)``."""
    found = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part.id)
        elif isinstance(part, ast.Attribute):
            found.append(part.attr)
        elif isinstance(part, ast.Subscript) and isinstance(constant(part.slice), str):
            found.append(str(constant(part.slice)))
        if len(found) > 12:
            break
    known = [f for f in found if names.is_metric(f)]
    return known[0] if known else ""


def _times_100(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.Mult)
        and 100 in (constant(n.left), constant(n.right))
        for n in ast.walk(node)
    )


def _function(module: Module, node: ast.AST) -> str:
    scope = module.scope(node)
    return scope.name if isinstance(scope, FUNCTIONS) else ""


def _phase(name: str, text: str, function: str) -> str:
    """``test``, ``val`` ... by the name, the line's text, or the function it is printed in."""
    for part in (name, text, function):
        for word in names.words(part):
            if word in names.PHASES:
                return "val" if word in ("valid", "validation", "validate") else word
    return "eval" if _EVALUATES.search(function) else ""


def _where(script: Script, call: ast.Call) -> int:
    module = script.module
    score = 15 if _EVALUATES.search(_function(module, call)) else 0
    loops = [n for n in module.up(call) if isinstance(n, ast.For | ast.While | ast.AsyncFor)]
    if not loops:
        return score + 10
    inner = loops[0]
    backward = any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "backward"
        for n in ast.walk(inner)
    )
    nested = any(n is not inner and isinstance(n, ast.For | ast.While) for n in ast.walk(inner))
    return score - 20 if backward and not nested else score


# --- dictionaries in a line ----------------------------------------------------------------------


def _json_text(module: Module, node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call) and module.is_a(node.func, "json.dumps") and node.args:
        return node.args[0]
    return node


def _dict_line(script: Script, call: ast.Call, keys: list[str]) -> Iterator[MetricPlace]:
    as_json = _json_text(script.module, call.args[0]) is not call.args[0]
    for key in keys:
        if not names.is_metric(key):
            continue
        line = "{" + ", ".join(f'"{k}": 0.8125' for k in keys[:8]) + "}"
        line = line if as_json else line.replace('"', "'")
        reading = read_line(line)
        if reading is not None and key.lower() in reading.values:
            yield replace(_keyed(script, call, key), reader=reading.reader, line=line)


def _keyed(script: Script, node: ast.AST, key: str) -> MetricPlace:
    function = _function(script.module, node)
    phase = _phase(key, "", function)
    score = names.worth(key if not phase or names.has_phase(key) else f"{phase} {key}")
    call = node if isinstance(node, ast.Call) else None
    return MetricPlace(
        name=names.tidy(key),
        source=f"{script.path}:{getattr(node, 'lineno', 0)}",
        higher_is_better=not names.lower_is_better(key),
        points=100.0 if names.is_share(key) else 0.0,
        key=key,
        score=score + (_where(script, call) if call is not None else 0),
    )


# --- frameworks ----------------------------------------------------------------------------------


def _trainer(script: Script, entry: Entry) -> Iterator[MetricPlace]:
    """The HF Trainer: what ``log_metrics`` prints, what ``save_metrics`` writes, and the dicts.

    While it trains, each evaluation is printed as a dict. After that nothing is, unless the program
    prints it (the progress bar that prints is gone).
    """
    if script.framework != "transformers Trainer":
        return
    module = script.module
    keys = [*_computed(script), "loss"]
    for call in (*module.methods("log_metrics"), *module.methods("save_metrics")):
        split = constant(call.args[0]) if call.args else None
        if not isinstance(split, str) or not re.fullmatch(r"\w{1,20}", split):
            continue
        for key in keys if split != "train" else ["loss"]:
            place = _keyed(script, call, f"{split}_{key}")
            if isinstance(call.func, ast.Attribute) and call.func.attr == "log_metrics":
                pattern = rf"{split}_{key}\s+=\s+{NUMBER}"
                line = f"  {split}_{key}            =     0.8125"
                yield replace(place, pattern=pattern, key="", line=line)
            elif output := _option(entry, "--output_dir"):
                file = f"{output.removeprefix('./').rstrip('/')}/{split}_results.json"
                yield replace(place, file=file, score=place.score - 20)
    evaluates = [c for c in module.methods("evaluate") if "trainer" in dotted(c.func).lower()]
    prefix = next((v for c in evaluates if (v := keyword(c, "metric_key_prefix"))), None)
    split = constant(prefix) if isinstance(constant(prefix), str) else "eval"
    during = _evaluates_while_training(module, entry)
    places: list[ast.expr] = [*evaluates] or ([during] if during is not None else [])
    for at in places:
        shown = during is not None or _is_printed(module, at)
        edit = (
            ""
            if shown
            else (
                "after training the Trainer prints an evaluation only with --disable_tqdm True: add that "
                "to both commands, or print it"
            )
        )
        for key in keys:
            place = replace(_keyed(script, at, f"{split}_{key}"), reader="hf dict", edit=edit)
            line = f"{{'{split}_{key}': 0.8125, 'epoch': 3.0}}"
            yield replace(place, line=line, score=place.score - (0 if shown else 30))
    for call in module.methods("train"):
        if "trainer" in dotted(call.func).lower():
            place = replace(_keyed(script, call, "train_loss"), reader="hf dict")
            yield replace(place, line="{'train_runtime': 1.0, 'train_loss': 0.8125}")


def _option(entry: Entry, name: str) -> str:
    for index, word in enumerate(entry.words):
        if word.startswith(name + "="):
            return word.partition("=")[2]
        if word == name and index + 1 < len(entry.words):
            return entry.words[index + 1]
    return ""


def _evaluates_while_training(module: Module, entry: Entry) -> ast.expr | None:
    names = ("eval_strategy", "evaluation_strategy")
    for call in module.calls:
        for name in names:
            if constant(value := keyword(call, name)) not in (None, "no"):
                return value
    if any(_option(entry, f"--{name}") not in ("", "no") for name in names):
        return next(iter(module.methods("train")), None)
    return None


def _is_printed(module: Module, call: ast.expr) -> bool:
    """``print(trainer.evaluate())``, or of the name it is given to."""
    parent = module.parents.get(call)
    targets: set[str] = set()
    if isinstance(parent, ast.Assign):
        targets = {t.id for t in parent.targets if isinstance(t, ast.Name)}
    for other in module.calls:
        func = other.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name in PRINTS:
            if any(a is call or (isinstance(a, ast.Name) and a.id in targets) for a in other.args):
                return True
    return False


def _computed(script: Script) -> list[str]:
    """The keys that the function given as ``compute_metrics`` returns."""
    module = script.module
    given = {dotted(v) for c in module.calls if (v := keyword(c, "compute_metrics")) is not None}
    keys: list[str] = []
    for function in module.functions:
        if function.name not in given and function.name != "compute_metrics":
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                keys += dict_keys(module, node.value)
    if not keys:
        for call in module.called("evaluate.load", "datasets.load_metric"):
            if call.args and isinstance(value := constant(call.args[0]), str):
                keys.append(value)
    return [k for k in dict.fromkeys(keys) if re.fullmatch(r"\w{1,40}", k)]


def _lightning(script: Script) -> Iterator[MetricPlace]:
    """``self.log("val_acc", ...)``: in the progress bar, or in the table of ``trainer.test``."""
    module = script.module
    if not module.imports_any("lightning", "pytorch_lightning"):
        return
    for call in module.calls:
        if dotted(call.func) != "self.log" or not call.args:
            continue
        key = constant(call.args[0])
        if isinstance(key, str) and names.is_metric(key):
            shown = constant(keyword(call, "prog_bar")) is True
            note = () if shown else ("Without prog_bar=True it is printed by trainer.test only.",)
            yield replace(_keyed(script, call, key), key=key, notes=note)


# --- files ---------------------------------------------------------------------------------------


def _written(script: Script, paths: PathReader) -> Iterator[MetricPlace]:
    for node, keys, where in writes(script):
        path = paths.read(where, script)
        if not path or not path.lower().endswith((".json", ".jsonl", ".csv", ".tsv")):
            continue
        for key in keys:
            if names.is_metric(key):
                place = _keyed(script, node, key)
                # What is printed can be followed while the run goes on, so it comes first.
                yield replace(place, file=path, score=place.score - 20)
