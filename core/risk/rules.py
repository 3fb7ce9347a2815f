"""What a rule of the risk scan is, and the registry of all of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.risk.module import Module

CATEGORIES = {
    "C1": "environment and dependencies",
    "C2": "CUDA and device assumptions",
    "C3": "library interactions",
    "C4": "lazy-tensor execution",
    "C5": "operators and numerics",
    "C6": "memory capacity",
}
"""The categories of findings, in the words of the cockpit."""


@dataclass(frozen=True, slots=True)
class Found:
    """A place a rule found. ``sure``: by the imports; otherwise it would need types to know.
    ``text`` is added where one rule has several cases."""

    node: ast.AST
    sure: bool = True
    text: str = ""


Look = Callable[[Module], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of place that will need work: ``why`` and ``todo`` are sentences."""

    name: str
    category: str
    title: str
    why: str
    todo: str
    look: Look | None = None


RULES: dict[str, Rule] = {}
"""All rules by name; those without ``look`` are asked by :mod:`core.risk.plain`, line by line."""


def rule(name: str, category: str, title: str, why: str, todo: str) -> Callable[[Look], Look]:
    """Register the decorated function as a rule over the tree of a Python file."""

    def register(look: Look) -> Look:
        add(Rule(name, category, title, why, todo, look))
        return look

    return register


def add(new: Rule) -> Rule:
    """Register a rule."""
    assert new.name not in RULES and new.category in CATEGORIES, new.name
    RULES[new.name] = new
    return new
