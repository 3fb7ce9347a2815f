"""What a project's Python file says of itself: its options, its framework, whether it trains."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from core.risk.module import Module, Unreadable, constant, dotted, keyword, notebook_code
from core.risk.tree import Listing

MAX_CLOSURE = 200
"""Files of a project that are looked at because an entry point imports them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One command-line option: ``--device``, its default and choices as they are written."""

    name: str
    line: int
    default: object = None
    choices: tuple[object, ...] = ()
    required: bool = False
    flag: bool = False


@dataclass(slots=True)
class Script:
    """One Python file. ``parser``: argparse, click, fire, hydra, HfArgumentParser or ""."""

    path: str
    module: Module
    main: int = 0
    parser: str = ""
    options: dict[str, Option] = field(default_factory=dict)
    trains: int = 0
    framework: str = ""
    seed: tuple[int, int] | None = None


class Scripts:
    """The Python files of a project, each read once, when it is asked for."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._known: dict[str, Script | None] = {}
        self._files = set(listing.files)

    def get(self, path: str) -> Script | None:
        """The facts of one file; None where it can't be read as Python."""
        if path not in self._known:
            text = self._listing.text(path) if path in self._files else None
            self._known[path] = _read(path, text) if text is not None else None
        return self._known[path]

    def file_of(self, words: tuple[str, ...], cwd: str = "") -> str:
        """The project's file that ``python`` with these words starts; "" where there is none."""
        if len(words) < 2:
            return ""
        if words[1] == "-m" and len(words) > 2:
            base = words[2].replace(".", "/")
            names = [f"{base}.py", f"{base}/__main__.py", f"src/{base}.py"]
        else:
            names = [words[1].removeprefix("./")]
        for name in names:
            path = f"{cwd}/{name}" if cwd else name
            if path in self._files:
                return path
        return ""

    def closure(self, path: str) -> list[Script]:
        """A file and the project's own files that it imports, directly or not, nearest first."""
        found: list[Script] = []
        seen, todo = {path}, [path]
        while todo and len(found) < MAX_CLOSURE:
            now = todo.pop(0)
            script = self.get(now)
            if script is None:
                continue
            found.append(script)
            for name in self._imported(script):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return found

    def _imported(self, script: Script) -> list[str]:
        here = script.path.rsplit("/", 1)[0] if "/" in script.path else ""
        found = []
        for _, name in script.module.imports:
            level = len(name) - len(name.lstrip("."))
            parts = [p for p in name.lstrip(".").split(".") if p]
            if level:
                base = here.split("/") if here else []
                base = base[: len(base) - (level - 1)] if level > 1 else base
                places = ["/".join(base)]
            else:
                places = [here, "", "src"]
            for place in places:
                for end in (len(parts), len(parts) - 1):
                    stem = "/".join([p for p in [place, *parts[:end]] if p])
                    for path in (f"{stem}.py", f"{stem}/__init__.py"):
                        if stem and path in self._files:
                            found.append(path)
        return found


def _read(path: str, text: str) -> Script | None:
    try:
        if path.endswith(".ipynb"):
            text = "\n".join(source for _, source in notebook_code(text))
        module = Module(path, text)
    except Unreadable:
        return None
    script = Script(path, module)
    script.main = _main_line(module)
    script.framework = _framework(module)
    script.trains = _trains(module)
    _options(script)
    script.seed = _seed(module)
    return script


def _main_line(module: Module) -> int:
    for node in module.tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare):
            sides = [node.test.left, *node.test.comparators]
            names = {dotted(s) for s in sides} | {constant(s) for s in sides}
            if "__name__" in names and "__main__" in names:
                return node.lineno
    if module.path.endswith("__main__.py"):
        return 1
    # A script without the guard: it reads its command line, or trains, as it is loaded.
    for call in (*module.methods("parse_args", "backward"), *module.methods("fit", "train")):
        assert isinstance(call.func, ast.Attribute)
        training = call.func.attr not in ("fit", "train") or "trainer" in dotted(call.func).lower()
        if training and module.torch and module.scope(call) is module.tree:
            if not any(isinstance(n, ast.ClassDef) for n in module.up(call)):
                return call.lineno
    return 0


def _framework(module: Module) -> str:
    for names, framework in (
        (("transformers.Trainer", "transformers.Seq2SeqTrainer"), "transformers Trainer"),
        (("accelerate.Accelerator",), "accelerate"),
        (
            ("lightning.Trainer", "pytorch_lightning.Trainer", "lightning.pytorch.Trainer"),
            "Lightning",
        ),
    ):
        imported = {name for _, name in module.imports}
        if any(n in imported for n in names) or any(True for _ in module.called(*names)):
            return framework
    return ""


def _trains(module: Module) -> int:
    """The line in which training happens: a backward, ``trainer.train()`` or ``trainer.fit()``."""
    for call in module.methods("backward"):
        if module.torch:
            return call.lineno
    for call in module.methods("train", "fit"):
        if isinstance(call.func, ast.Attribute) and "trainer" in dotted(call.func.value).lower():
            return call.lineno
    return 0


def _options(script: Script) -> None:
    module = script.module
    for call in module.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name == "add_argument" or module.is_a(call.func, "click.option"):
            script.parser = "click" if module.is_a(call.func, "click.option") else "argparse"
            _add(script, call)
        elif module.is_a(call.func, "transformers.HfArgumentParser") or name == "HfArgumentParser":
            script.parser = "HfArgumentParser"
        elif module.is_a(call.func, "fire.Fire"):
            script.parser = "fire"
    for function in module.functions:
        for decorator in function.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if module.is_a(target, "hydra.main"):
                script.parser = "hydra"
    if any(name.endswith("HfArgumentParser") for _, name in module.imports):
        script.parser = "HfArgumentParser"
    if script.parser == "HfArgumentParser":
        _dataclass_fields(script)


def _add(script: Script, call: ast.Call) -> None:
    names = [v for a in call.args if isinstance(v := constant(a), str)]
    if not names:
        return
    name = max(names, key=len)
    choices = keyword(call, "choices") or keyword(call, "type")
    listed = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
    if isinstance(choices, ast.Call) and choices.args:  # click.Choice([...])
        inner = choices.args[0]
        listed = inner.elts if isinstance(inner, ast.List | ast.Tuple) else []
    action = constant(keyword(call, "action"))
    flag = action in ("store_true", "store_false") or constant(keyword(call, "is_flag")) is True
    default = keyword(call, "default")
    many = constant(keyword(call, "nargs")) in ("?", "*")
    required = constant(keyword(call, "required")) is True
    if not name.startswith("-"):
        required = not many and default is None
    value = constant(default) if not isinstance(default, ast.IfExp) else _first_text(default)
    script.options.setdefault(
        name, Option(name, call.lineno, value, tuple(constant(c) for c in listed), required, flag)
    )


def _first_text(node: ast.IfExp) -> object:
    value = constant(node.body)
    return value if value is not None else constant(node.orelse)


def _dataclass_fields(script: Script) -> None:
    """Fields of the dataclasses that an HfArgumentParser fills from the command line."""
    for node in ast.walk(script.module.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        if not any("dataclass" in ast.unparse(d)[:200] for d in node.decorator_list):
            continue
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                default: object = None
                value = part.value
                required = value is None
                if isinstance(value, ast.Call):
                    given = keyword(value, "default")
                    default = constant(given)
                    required = given is None and keyword(value, "default_factory") is None
                elif value is not None:
                    default = constant(value)
                name = "--" + part.target.id
                script.options.setdefault(name, Option(name, part.lineno, default, (), required))


def _seed(module: Module) -> tuple[int, int] | None:
    """A seed that is written in the code: its value and line."""
    names = ("torch.manual_seed", "random.seed", "numpy.random.seed", "transformers.set_seed")
    more = ("lightning.seed_everything", "pytorch_lightning.seed_everything")
    for call in module.called(*names, *more, "accelerate.utils.set_seed"):
        value = constant(call.args[0]) if call.args else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32:
            return value, call.lineno
    return None


_WORD = re.compile(r"[A-Za-z]+")


def name_words(path: str) -> set[str]:
    """The words of a file's name and of the directories it is in."""
    return {w.lower() for w in _WORD.findall(path)}
