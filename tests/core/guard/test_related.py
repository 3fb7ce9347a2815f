"""The tags that a failed check points to."""

from __future__ import annotations

from core.checks import CHECKS
from core.events import DiffTagged
from core.guard.kinds import KINDS
from core.guard.related import RELATED, related
from core.guard.tag import Tag


def test_every_check_and_kind_that_is_named_is_one() -> None:
    assert set(RELATED) <= set(CHECKS)
    assert {kind for kinds in RELATED.values() for kind in kinds} <= set(KINDS)


def test_tags_of_the_same_tree_and_a_fitting_kind_sure_ones_first() -> None:
    guess, sure = Tag("clipping", "a", "t.py", 1, sure=False), Tag("clipping", "b", "t.py", 2)
    other = Tag("seed", "c", "t.py", 3)
    tagged = DiffTagged("t1", [t.to_json() for t in (guess, other, sure)] + [{"kind": 3}])
    assert related("L1.clip", tagged, "t1") == [sure, guess]
    assert related("L1.clip", tagged, "t2") == related("L1.clip", None, "t1") == []
    assert related("L0.exit", tagged, "t1") == []
