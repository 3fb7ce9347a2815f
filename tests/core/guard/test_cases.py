"""Each kind of change is tagged, and its faithful twin is not."""

from __future__ import annotations

import ast

import pytest

from core.guard.change import guard_change
from core.guard.kinds import KINDS
from tests.core.guard.cases import CASES, Case
from tests.core.guard.programs import MIGRATION, TRAIN


def _versions(case: Case) -> tuple[str, str, str]:
    if case.path != "train.py":
        return case.old, case.new, case.twin
    assert case.old in TRAIN, case.old
    return TRAIN, TRAIN.replace(case.old, case.new, 1), TRAIN.replace(case.old, case.twin, 1)


def _name(case: Case) -> str:
    return f"{case.kind}:{case.old.strip()[:30]}>{case.new.strip()[:30]}"


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_the_change_is_tagged_and_its_twin_is_not(case: Case) -> None:
    before, changed, twin = _versions(case)
    if case.path.endswith(".py"):
        for text in (before, changed, twin):
            ast.parse(text)
    tags = guard_change(case.path, before, changed)
    found = [t for t in tags if t.kind == case.kind]
    assert found, [t.sentence for t in tags]
    assert any(t.sure for t in found) or not case.sure, [t.sentence for t in found]
    told = [t.sentence for t in guard_change(case.path, before, twin)]
    assert told == []


def test_each_kind_has_a_change_and_a_twin() -> None:
    asked = {case.kind for case in CASES if case.twin or case.path == "train.py"}
    assert set(KINDS) - asked == {"protected"}  # by the policy, not by what has changed


def test_a_faithful_migration_has_no_sure_tag() -> None:
    migrated = TRAIN
    for old, new in MIGRATION:
        assert old in migrated, old
        migrated = migrated.replace(old, new, 1)
    ast.parse(migrated)
    assert [t.sentence for t in guard_change("train.py", TRAIN, migrated)] == []
