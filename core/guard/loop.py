"""Facts from the order of things in a training loop.

Functions of the file are followed where they are called, so that a loop that is cut into functions, or
put together again, says the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from core.guard.calls import called, scope_name
from core.guard.tag import Arg, Fact
from core.guard.values import Values
from core.risk.module import FUNCTIONS, dotted

_MAX_EVENTS = 4_000  # of one function with what it calls
_MAX_DEPTH = 4
_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_gradients")
_SCHEDULE = ("sched", "warmup", "lr_s", "annealing")
_LOOP = (ast.For, ast.AsyncFor, ast.While)


@dataclass(slots=True)
class _Event:
    what: str  # backward, clip, reduce, step, zero, schedule, exit
    node: ast.AST
    loops: tuple[ast.AST, ...]
    tests: tuple[ast.expr, ...]  # of the ``if`` statements around it, with their branch
    order: int


def loop_facts(values: Values) -> Iterator[Fact]:
    """What the loops around ``backward()`` do, and when."""
    module = values.module
    functions: dict[str, ast.AST] = {f.name: f for f in module.functions}
    plainly = {called(c) for c in module.calls if _is_own(c)}
    roots: list[ast.AST] = [module.tree]
    roots += [f for f in module.functions if f.name not in plainly]
    roots += [f for f in module.functions if f.name in plainly]
    followed: set[ast.AST] = set()
    seen: set[tuple[str, int, str]] = set()
    for root in roots:
        if root in followed:
            continue
        walk = _Walk(values, functions)
        walk.body(getattr(root, "body", []), (), ())
        followed |= walk.followed
        for fact in _facts(values, walk.events, root):
            key = (fact.group, fact.line, str(fact.args))
            if key not in seen:
                seen.add(key)
                yield fact


def _is_own(call: ast.Call) -> bool:
    """Whether ``f()`` or ``self.f()`` is called: what may be a function of this file."""
    if isinstance(call.func, ast.Attribute):
        return dotted(call.func.value) in ("self", "cls")
    return isinstance(call.func, ast.Name)


class _Walk:
    """The events of one function, in the order of the source."""

    def __init__(self, values: Values, functions: dict[str, ast.AST]) -> None:
        self.events: list[_Event] = []
        self._values = values
        self._functions = functions
        self._inside: list[ast.AST] = []
        self.followed: set[ast.AST] = set()

    def body(
        self, body: list[ast.stmt], loops: tuple[ast.AST, ...], tests: tuple[ast.expr, ...]
    ) -> None:
        for statement in body:
            if len(self.events) > _MAX_EVENTS:
                return
            self._statement(statement, loops, tests)

    def _statement(
        self, node: ast.stmt, loops: tuple[ast.AST, ...], tests: tuple[ast.expr, ...]
    ) -> None:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return
        if isinstance(node, _LOOP):
            self._calls(node.test if isinstance(node, ast.While) else node.iter, loops, tests)
            self.body(node.body, (*loops, node), tests)
            self.body(node.orelse, loops, tests)
        elif isinstance(node, ast.If):
            self._calls(node.test, loops, tests)
            self.body(node.body, loops, (*tests, node.test))
            self.body(node.orelse, loops, (*tests, ast.UnaryOp(ast.Not(), node.test)))
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._calls(item.context_expr, loops, tests)
            self.body(node.body, loops, tests)
        elif isinstance(node, ast.Try):
            self.body(node.body, loops, tests)
            for handler in node.handlers:
                self.body(handler.body, loops, tests)
            self.body(node.orelse, loops, tests)
            self.body(node.finalbody, loops, tests)
        elif isinstance(node, ast.Break | ast.Continue):
            if loops:
                self._add("exit", node, loops, tests)
        else:
            self._calls(node, loops, tests)
            if isinstance(node, ast.Return) and loops and not self._inside:
                self._add("exit", node, loops, tests)

    def _calls(
        self, node: ast.AST, loops: tuple[ast.AST, ...], tests: tuple[ast.expr, ...]
    ) -> None:
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        for call in sorted(calls, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):
            what = self._what(call)
            if what:
                self._add(what, call, loops, tests)
                continue
            function = self._functions.get(called(call))
            if function is None or function in self._inside or len(self._inside) >= _MAX_DEPTH:
                continue
            if _is_own(call):
                self.followed.add(function)
                self._inside.append(function)
                self.body(getattr(function, "body", []), loops, tests)
                self._inside.pop()

    def _add(
        self,
        what: str,
        node: ast.AST,
        loops: tuple[ast.AST, ...],
        tests: tuple[ast.expr, ...],
    ) -> None:
        self.events.append(_Event(what, node, loops, tests, len(self.events)))

    def _what(self, call: ast.Call) -> str:
        name = called(call)
        base = dotted(call.func.value).lower() if isinstance(call.func, ast.Attribute) else ""
        if name == "backward" and isinstance(call.func, ast.Attribute):
            return "backward"
        if name in _CLIPS:
            return "clip"
        if name == "zero_grad":
            return "zero"
        if name in ("reduce_gradients", "all_reduce", "synchronize") and base:
            return "reduce" if name != "synchronize" or "optim" in base else ""
        if name == "optimizer_step":
            return "step"
        if name == "sys.exit" or (name == "exit" and base in ("", "sys")):
            return "exit"
        if name not in ("step", "step_update"):
            return ""
        if any(word in base for word in _SCHEDULE) or self._made_by(call, "schedule"):
            return "schedule"
        if "opt" in base or "scaler" in base or self._made_by(call, "optimizer"):
            return "step"
        return ""

    def _made_by(self, call: ast.Call, group: str) -> bool:
        """Whether ``x.step()`` is of an ``x`` that a known optimizer or schedule was assigned to."""
        from core.guard.known_calls import KNOWN

        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(base, ast.Name):
            return False
        made = self._values.made_by(base.id, self._values.scope(call))
        known = KNOWN.get(called(made)) if isinstance(made, ast.Call) else None
        return known is not None and known.group == group


def _facts(values: Values, events: list[_Event], function: ast.AST) -> Iterator[Fact]:
    root = getattr(function, "name", "")
    loops: dict[ast.AST, list[_Event]] = {}
    # Training without a backward pass (zeroth order, or a closure) is known by the optimizer's step.
    anchor = "backward" if any(e.what == "backward" for e in events) else "step"
    for event in events:
        if event.what == anchor:
            # Without a loop, the function is one step, and its loop is elsewhere.
            loops.setdefault(event.loops[-1] if event.loops else function, []).append(event)
    for loop, backwards in loops.items():
        inside = [e for e in events if loop in e.loops or loop is function]
        yield from _order(values, events, inside, backwards[0], loop, root)
        for outer in backwards[0].loops:
            yield from _length(values, outer, root)
        yield from _exits(values, events, backwards[0], root)


def _order(
    values: Values,
    events: list[_Event],
    inside: list[_Event],
    backward: _Event,
    loop: ast.AST,
    root: str,
) -> Iterator[Fact]:
    def first(what: str) -> _Event | None:
        return next((e for e in inside if e.what == what), None)

    step = first("step")
    line = getattr(backward.node, "lineno", 1)
    if step is None:
        outside = next((e for e in events if e.what == "step"), None)
        if outside is not None:
            place = "outside of the loop with backward()"
            yield _placed("step", "accumulation", "the optimizer's step", place, outside, root)
        return
    yield _placed("step", "accumulation", "the optimizer's step", "in the loop", step, root)
    yield from _when(values, step, backward, root)
    for clip in [e for e in inside if e.what == "clip"][:4]:
        between = backward.order < clip.order < step.order
        place = (
            "between backward() and step()"
            if between
            else ("after step()" if clip.order > step.order else "before backward()")
        )
        guards = [t for t in step.tests if t not in backward.tests]
        if any("%" in ast.unparse(t) for t in guards) and not set(guards) <= set(clip.tests):
            place += ", each time and not only before a step"
        yield _placed("clip", "clipping", "clipping of gradients", place, clip, root)
        reduce = first("reduce")
        implied = "DistributedDataParallel" in values.module.text  # it reduces in backward()
        if between and (implied or reduce is not None):
            after = reduce is None or clip.order > reduce.order
            place = "after the reduction" if after else "before the reduction"
            yield _placed("clip-reduce", "clipping", "clipping of gradients", place, clip, root)
    zeroes = [
        e
        for e in events
        if e.what == "zero" and (e in inside or set(backward.loops) & set(e.loops))
    ]
    if zeroes:
        zero = zeroes[0]
        if zero not in inside:
            place = "outside of the loop with backward()"
        elif backward.order < zero.order < step.order:
            place = "between backward() and step()"
        else:
            place = "in the loop"
        conditions = [t for t in zero.tests if t not in backward.tests and t not in step.tests]
        if any("%" in ast.unparse(t) for t in conditions):
            place += ", not each time"
        yield _placed("zero", "accumulation", "zero_grad()", place, zero, root)
    else:
        none = Fact("order:zero", "accumulation", "zero_grad()", line, {}, "quiet", "zero", root)
        none.args["place"] = Arg("accumulation", "nowhere")
        yield none
    schedules = [e for e in events if e.what == "schedule"][:4]
    if not schedules:
        none = Fact(
            "order:schedule",
            "schedule",
            "the schedule's step()",
            line,
            {},
            "quiet",
            "schedule",
            root,
        )
        none.args["place"] = Arg("schedule", "nowhere")
        yield none
    for schedule in schedules:
        if schedule in inside:
            place = "each batch"
            if set(step.tests) <= set(schedule.tests) and step.tests:
                place = "each optimizer step"
            if schedule.order < step.order:
                place += ", before the optimizer's step"
        else:
            place = "outside of the loop with backward()" if schedule.loops else "once"
        yield _placed("schedule", "schedule", "the schedule's step()", place, schedule, root)


def _placed(what: str, kind: str, label: str, place: str, event: _Event, root: str) -> Fact:
    line = getattr(event.node, "lineno", 1)
    args = {"place": Arg(kind, place)}
    return Fact(f"order:{what}", kind, label, line, args, "quiet", what, root)


def _when(values: Values, step: _Event, backward: _Event, root: str) -> Iterator[Fact]:
    """The conditions under which the optimizer steps, beyond those of the backward pass."""
    tests = [t for t in step.tests if t not in backward.tests]
    text = " and ".join(values.text(t) for t in tests if not isinstance(t, ast.UnaryOp))
    fact = Fact("step-when", "accumulation", "when the optimizer steps", 1, {}, "quiet", "", root)
    fact.line = getattr(step.node, "lineno", 1)
    # A branch by device or library is none by count: only a remainder is accumulation.
    counted = "%" in text
    fact.args["when"] = Arg("accumulation", text if counted else "each time")
    yield fact


def _length(values: Values, loop: ast.AST, root: str) -> Iterator[Fact]:
    """How often a loop around the backward pass goes round."""
    node: ast.AST | None = loop.test if isinstance(loop, ast.While) else getattr(loop, "iter", None)
    while isinstance(node, ast.Call) and node.args:
        if called(node) in (
            "tqdm",
            "trange",
            "track",
            "enumerate",
            "MpDeviceLoader",
            "list",
            "iter",
        ):
            if called(node) == "trange":
                break
            node = node.args[0]
        else:
            break
    line = getattr(loop, "lineno", 1)
    kind = "epochs"
    if isinstance(loop, ast.While):
        text = values.text(node)
        if text in ("True", "1"):
            return
    elif isinstance(node, ast.Call) and called(node) in ("range", "trange"):
        text = ", ".join(values.text(a) for a in node.args)
    else:
        return
    args = {"length": Arg(kind, text)}
    yield Fact("length", kind, "the length of a training loop", line, args, "quiet", "", root)


def _exits(values: Values, events: list[_Event], backward: _Event, root: str) -> Iterator[Fact]:
    for event in events:
        if event.what != "exit" or not set(event.loops) & set(backward.loops):
            continue
        if event.loops[-1] not in backward.loops:
            continue  # of another loop inside
        word = type(event.node).__name__.lower()
        tests = [t for t in event.tests if t not in backward.tests or word != "continue"]
        when = " and ".join(values.text(t) for t in tests[-2:])
        scope = scope_name(values, event.node) or root
        yield Fact(
            "exit",
            "early exit",
            f"{'exit' if word == 'call' else word} in a training loop",
            getattr(event.node, "lineno", 1),
            {"when": Arg("early exit", when), "word": Arg("early exit", word)},
            "sure",
            "",
            scope,
        )
