"""What holds for any text: nothing is raised, the same is no change, reformatting is none."""

from __future__ import annotations

import ast
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.guard.change import MAX_TAGS, guard_change, guard_patch
from core.guard.tag import MAX_VALUE, Tag
from tests.core.guard.cases import CASES
from tests.core.guard.programs import TRAIN

_FUNCTIONS = TRAIN.split("\n\n\n")
_LINES = st.lists(
    st.sampled_from([*TRAIN.split("\n"), *(c.new for c in CASES), "", "try:", ")", "\tx = 1"])
)
_PATHS = st.sampled_from(
    ["train.py", "tests/test_a.py", "eval.py", "a.yaml", "a.json", "a.toml", "run.sh", "requirements.txt", "a.ipynb",
     "x.bin", "\x1b]0;x\x07.py", "data/val.csv", "", "Dockerfile"]
)  # fmt: skip


@given(_PATHS, _LINES, _LINES)
def test_any_texts_give_tags_that_can_be_stored_and_shown(
    path: str, one: list[str], other: list[str]
) -> None:
    before, after = "\n".join(one), "\n".join(other)
    tags = guard_change(path, before, after)
    assert len(tags) <= MAX_TAGS
    for tag in tags:
        assert Tag.from_json(tag.to_json()) == tag
        assert tag.line >= 1 and len(tag.before) <= MAX_VALUE and len(tag.after) <= MAX_VALUE
        lines = (after if tag.side == "new" else before).split("\n")
        assert tag.line <= len(lines)
        assert (tag.sentence + tag.why).isprintable()
    assert guard_change(path, before, before) == guard_change(path, after, after) == []


@given(_PATHS, st.text(), st.text())
def test_texts_that_are_nothing_known(path: str, before: str, after: str) -> None:
    guard_change(path, before, after)
    guard_patch(before)
    assert guard_change(path, after, after) == []


@given(st.permutations(range(len(_FUNCTIONS) - 2)), st.sampled_from(CASES))
@settings(max_examples=15)
def test_reformatted_and_moved_code_is_no_change(order: list[int], case: object) -> None:
    # The first part has the imports and constants, the last one calls main.
    middle = [_FUNCTIONS[1:-1][n] for n in order]
    moved = "\n\n\n".join([_FUNCTIONS[0], *middle, _FUNCTIONS[-1]])
    assert guard_change("train.py", TRAIN, moved) == []
    assert guard_change("train.py", TRAIN, ast.unparse(ast.parse(moved))) == []


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.path == "train.py"][::4], ids=lambda c: c.new[:30]
)
def test_a_change_is_found_in_reformatted_code_too(case: object) -> None:
    assert hasattr(case, "old")
    changed = TRAIN.replace(case.old, case.new, 1)
    tags = guard_change("train.py", TRAIN, ast.unparse(ast.parse(changed)))
    assert case.kind in {t.kind for t in tags}


@pytest.mark.parametrize(
    ("old", "new"),
    [("accuracy", "result"), ("optimizer", "opt_1"), ("train_loader", "batches"), ("criterion", "measure_loss"),
     ("ACCUMULATION", "EVERY"), ("args", "options"), ("logits", "scores"), ("evaluate", "evaluate_all"),
     ("step", "number")],
)  # fmt: skip
def test_a_renamed_name_is_no_sure_change(old: str, new: str) -> None:
    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            node.id = new if node.id == old else node.id
            return node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.name = new if node.name == old else node.name
            self.generic_visit(node)
            return node

        def visit_arg(self, node: ast.arg) -> ast.AST:
            node.arg = new if node.arg == old else node.arg
            return node

    renamed = ast.unparse(Rename().visit(ast.parse(TRAIN)))
    assert renamed != ast.unparse(ast.parse(TRAIN))
    assert [t.sentence for t in guard_change("train.py", TRAIN, renamed)] == []


# --- files that can't be read ------------------------------------------------------------------

OLD = 'print "epoch", epoch\noptimizer = SGD(params, lr=0.1)\nclip_grad_norm_(params, 1.0)\n'


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (OLD, OLD.replace("0.1", "0.5"), "looks like Python 2"),
        ("lr = 0.1\n", "lr = 0.5\ndef f(:\n", "syntax error in line 2"),
        ("lr = 0.1\n", "lr = 0.5\nx = " + "(" * 5000 + ")" * 5000, "nested|syntax error"),
        ("lr = 0.1\n", "lr = 0.5\nx = " + "-" * 100_000 + "1", "nested|syntax error"),
        ("lr = 0.1\n", "lr = 0.5\nx = " + "a." * 20_000 + "b", "nested|syntax error"),
    ],
)
def test_what_has_no_syntax_tree_is_a_guess_that_says_so(before: str, after: str, why: str) -> None:
    tags = guard_change("train.py", before, after)
    assert "learning rate" in {t.kind for t in tags}
    for tag in tags:
        assert not tag.sure
        assert any(part in tag.why for part in why.split("|")), tag.why


def test_an_edit_of_a_test_in_mid_edit_asks_too() -> None:
    (tag,) = guard_change("tests/test_a.py", "assert a == 1\n", "assert a == 2\nif:\n")[:1]
    assert tag.kind == "tests" and not tag.sure


def test_files_that_are_no_text_are_known_by_their_paths() -> None:
    patch = "diff --git a/data/test.npz b/data/test.npz\nBinary files a/data/test.npz and b/data/test.npz differ\n"
    assert [t.kind for t in guard_patch(patch)] == ["evaluation data"]
    assert guard_patch(patch.replace("test.npz", "weights.npz")) == []
    assert [t.kind for t in guard_change("tests/test_a.py", "assert 1\n", None)] == ["tests"]
    assert guard_change("tests/test_new.py", None, "assert 1\n") == []


def test_a_patch_is_applied_to_the_file_it_is_for() -> None:
    before = "import torch\nX = 3\nopt = torch.optim.SGD(p, lr=0.1)\n"
    patch = "--- a/t.py\n+++ b/t.py\n@@ -3 +3 @@\n-opt = torch.optim.SGD(p, lr=0.1)\n+opt = torch.optim.SGD(p, lr=0.2)\n"
    (whole,) = guard_patch(patch, {"t.py": before}.get)
    assert (whole.kind, whole.line, whole.sure) == ("learning rate", 3, True)
    guesses = guard_patch(patch)
    assert ("learning rate", 3, "0.1", "0.2") in {
        (t.kind, t.line, t.before, t.after) for t in guesses
    }
    assert not any(t.sure for t in guesses)
    assert guard_patch(patch, {"t.py": "something else\n"}.get) == guesses
    moved = "diff --git a/tests/test_a.py b/old/a.py\nsimilarity index 100%\nrename from tests/test_a.py\nrename to old/a.py\n"
    assert [t.kind for t in guard_patch(moved)] == ["tests"]


def test_a_change_in_a_large_file_is_found_where_it_is() -> None:
    filler = "\n".join(f"def f{n}(x):\n    return x * {n}\n" for n in range(2_000))
    large = TRAIN.replace("def evaluate", f"{filler}\n\ndef evaluate")
    changed = large.replace("model.parameters(), 1.0)", "model.parameters(), 3.0)")
    begin = time.process_time()
    (tag,) = guard_change("train.py", large, changed)
    used = time.process_time() - begin
    assert tag.kind == "clipping" and "clip_grad_norm_" in changed.split("\n")[tag.line - 1]
    assert used < 30, "far above the 0.3 s it takes: some step is quadratic"
