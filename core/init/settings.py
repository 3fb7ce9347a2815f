"""Configuration files of a project: the few values a migration has to keep, with their lines.

Read line by line: YAML, JSON, TOML and INI are close enough for ``key: value``, and nothing of a
stranger's file is constructed.
"""

from __future__ import annotations

import re

from core.init.facts import Entry, Fact
from core.init.script import Script, Scripts
from core.risk.tree import Listing
from core.text import clean

KEYS = {
    "epochs": r"epochs|num_epochs|max_epochs|n_epochs|num_train_epochs",
    "steps": r"max_steps|total_steps|num_steps|max_iters|num_iterations|iterations",
    "batch size": r"batch_size|train_batch_size|per_device_train_batch_size|batchsize|bs",
    "learning rate": r"lr|learning_rate|base_lr|max_lr",
    "seed": r"seed|random_seed|manual_seed",
    "device": r"device|accelerator",
}
"""What is looked for, by the names it has."""

_LINE = re.compile(
    r"^[-\s]*[\"']?(?:[\w]+\.)*(?P<key>\w+)[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s,\"'#}\]]{1,60})"
)

MAX_FILES = 40


def config_files(entry: Entry, listing: Listing, scripts: Scripts) -> list[str]:
    """The configuration files that a command names, or that its script has as default."""
    files = {f for f in listing.files if f.endswith((".yaml", ".yml", ".json", ".toml", ".ini"))}
    named = [w.split("=", 1)[-1].removeprefix("./") for w in entry.words]
    script = scripts.get(entry.script) if entry.script else None
    if script is not None:
        named += [o.default for o in script.options.values() if isinstance(o.default, str)]
    found = [n for n in named if n in files]
    if not found and script is not None:
        # A name alone, as with hydra (--config-name base) or Path(...) / "base.json" in the code.
        words = {w.split("=", 1)[-1] for w in entry.words}
        for near in scripts.closure(entry.script)[:20]:
            words |= {text for _, text in near.module.strings if 2 < len(text) < 80}
        for file in sorted(files):
            name = file.rsplit("/", 1)[-1]
            if name in words or (script.parser == "hydra" and name.rsplit(".", 1)[0] in words):
                found.append(file)
    return list(dict.fromkeys(found))[:MAX_FILES]


def read_settings(files: list[str], listing: Listing) -> list[Fact[str]]:
    """``epochs 3``, ``lr 1e-3`` ... with file and line, the first of each kind a file."""
    facts: list[Fact[str]] = []
    for path in files:
        text = listing.text(path) or ""
        seen: set[str] = set()
        for number, line in enumerate(text.split("\n")[:5_000], 1):
            match = _LINE.match(line[:400])
            if match is None:
                continue
            for kind, names in KEYS.items():
                if kind not in seen and re.fullmatch(names, match["key"], re.IGNORECASE):
                    seen.add(kind)
                    value = clean(f"{match['key']} {match['value']}")
                    facts.append(Fact(value, f"{path}:{number}"))
    return facts


def find_seeds(entry: Entry, scripts: Scripts, settings: list[Fact[str]]) -> Fact[list[int]] | None:
    """The seed the command runs with: on its command line, in its files, as a default, in code."""
    words = list(entry.words)
    for index, word in enumerate(words):
        name, sign, value = word.partition("=")
        if re.fullmatch(r"(?:--)?(?:[\w.]*[._-])?(?:seed|random[_-]seed|manual[_-]seed)", name):
            value = value if sign else (words[index + 1] if index + 1 < len(words) else "")
            if (seed := _seed(value)) is not None:
                return Fact([seed], entry.source)
    for fact in settings:
        name, _, value = fact.value.partition(" ")
        if "seed" in name.lower() and (seed := _seed(value)) is not None:
            return Fact([seed], fact.source)
    near = scripts.closure(entry.script)[:40] if entry.script else []
    for script in near:
        if found := _default_seed(script):
            return found
    for script in near:
        if script.seed is not None:
            return Fact([script.seed[0]], f"{script.path}:{script.seed[1]}")
    return None


def _default_seed(script: Script) -> Fact[list[int]] | None:
    for name in ("--seed", "--random_seed", "--random-seed", "--manual-seed"):
        option = script.options.get(name)
        if option is not None and isinstance(option.default, int) and option.default >= 0:
            if not isinstance(option.default, bool) and option.default < 2**32:
                return Fact([option.default], f"{script.path}:{option.line} (default of {name})")
    return None


def _seed(text: str) -> int | None:
    if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) < 2**32:
        return int(text)
    return None
