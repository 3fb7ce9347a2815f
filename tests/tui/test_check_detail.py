"""The detail of a check: everything needed to doubt it, on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from rich.style import Style

from core.levels import CheckStatus, ladder
from core.verify.evaluate import measure, waived
from tests.core.scene import Scene, healthy
from tui.panes.check_detail import can_waive, check_detail
from tui.theme import Palette

COLOURS = Palette(**dict.fromkeys((f.name for f in dataclasses.fields(Palette)), Style()))


def measured(scene: Scene) -> Scene:
    results, level = measure(scene.state, "t1")
    for result in (*results, level):
        scene.add(result, tree="t1")
    return scene


def statuses(scene: Scene) -> Iterator[CheckStatus]:
    return (s for level in ladder(scene.state).levels for s in level.checks)


def detail(scene: Scene, id: str) -> str:
    status = next(s for s in statuses(scene) if s.check.id == id)
    return check_detail(status, scene.state, COLOURS).plain


def test_every_check_can_be_looked_at_before_and_after_it_was_measured() -> None:
    scene = healthy()
    before = [detail(scene, s.check.id) for s in statuses(scene)]
    assert all("Nothing has been measured yet" in text for text in before)
    measured(scene)
    for status in statuses(scene):
        text = detail(scene, status.check.id)
        assert status.check.question in text
        assert "how it is judged" in text


def test_the_modules_stand_in_a_table_and_the_tolerance_with_its_source() -> None:
    text = detail(measured(healthy()), "L1.forward")
    rows = text.splitlines()
    head = next(
        i for i, row in enumerate(rows) if row.split() == ["alone", "in", "place", "module"]
    )
    assert rows[head + 2].split() == ["2e-07", "3e-07", "blocks.0.up", "(Linear)"]
    assert "tolerance  relative L2 1e-05" in text
    assert "The oracle prototype saw 3.5e-7" in text
    assert "forward_rtol 1e-05" in text
    assert "this reference run; another of any, and it is stale" in text


def test_footnotes_are_told_and_a_stale_check_says_why() -> None:
    scene = healthy()
    measured(scene).snapshot("t2")
    text = detail(scene, "L3.metric")
    assert "why stale" in text and "holds for" not in text


@pytest.mark.parametrize(("id", "words"), [("L3.metric", ""), ("L0.exit", "is pass")])
def test_only_what_failed_or_did_not_run_can_be_waived(id: str, words: str) -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", lines=("test accuracy: 0.5",))
    scene.run("parity", "target", lines=())
    measured(scene)
    status = next(s for s in statuses(scene) if s.check.id == id)
    assert words in can_waive(status)
    if not words:
        assert status.result is not None
        scene.add(waived(status.result.body, "agreed", "ana"), tree="t1")
        assert "the waiver ends" in detail(scene, id)
