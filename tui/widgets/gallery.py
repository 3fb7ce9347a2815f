"""All widgets on one screen, over sample data: ``python -m tui.widgets.gallery``.

For looking at them while they are worked on; the cockpit does not use it. With ``--svg PATH`` it
writes one picture of ``--size`` (80x24) and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from tui.theme import THEMES
from tui.widgets import DiffTag, DiffView, LinePlot, LogView, Moment, PlainLine, Series, Timeline

DIFF = """\
diff --git a/train.py b/train.py
index 83db48f..bf269f4 100644
--- a/train.py
+++ b/train.py
@@ -38,4 +38,5 @@ def build(config):
     model = InkFormer(config)
-    model = model.cuda()
-    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
+    device = torch_xla.device()
+    model = model.to(device)
+    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)  # after the move
     return model, optimizer
@@ -71,5 +72,5 @@ class Trainer:
     def step(self, batch):
         loss = self.loss(batch)
-        self.scaler.scale(loss).backward()
+        loss.backward()
         clip_grad_norm_(self.model.parameters(), 1.0)  # 梯度裁剪 ✂
-        print("loss", loss.item())
+        print("loss", loss.detach())
diff --git a/data/loader.py b/data/input_pipeline.py
similarity index 96%
rename from data/loader.py
rename to data/input_pipeline.py
--- a/data/loader.py
+++ b/data/input_pipeline.py
@@ -12,1 +12,1 @@ def loader(split):
-    return DataLoader(split, batch_size=64)
+    return DataLoader(split, batch_size=64, drop_last=True)
\\ No newline at end of file
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/curve.png b/curve.png
Binary files a/curve.png and b/curve.png differ
"""
TAGS = (
    DiffTag("train.py", 40, "C2"),
    DiffTag("train.py", 75, "guard"),
    DiffTag("data/input_pipeline.py", 12, "idiom"),
)


def sample_lines(count: int) -> list[PlainLine]:
    """Lines as a run prints them, some of them hostile."""
    special = {
        5: PlainLine(
            "stderr", "pt-xla-profiler: CompileTime too frequent: 12 counts during 14 steps"
        ),
        9: PlainLine("stdout", "epoch 1 梯度 ✂ 訓練 🚀 accuracy: 0.91"),
        12: PlainLine(
            "stdout", "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]markup[/] \u202egnihtyna"
        ),
        14: PlainLine("stderr", "Traceback (most recent call last):"),
        15: PlainLine("stderr", '  File "train.py", line 41, in build'),
        16: PlainLine("stderr", "RuntimeError: Found no NVIDIA driver on your system."),
    }
    return [
        special.get(
            n, PlainLine("stdout", f"step {n} loss {2.3 * math.exp(-n / 90):.4f}  1.9 it/s")
        )
        for n in range(count)
    ]


def sample_series() -> list[Series]:
    """A loss with two steps that are no number, and the reference it is held against."""
    steps = list(range(400))
    loss = [2.3 * math.exp(-n / 90) + 0.12 * math.sin(n / 5) + 0.25 for n in steps]
    loss[140] = loss[141] = math.nan
    reference = [2.2 * math.exp(-n / 70) + 0.2 for n in steps]
    return [Series("loss", steps, loss), Series("reference", steps, reference)]


MOMENTS = [
    Moment(3, 10_000_000, "attempt", "attempt #1: python -m inkformer.train --device xla"),
    Moment(9, 25_000_000, "failed", "attempt #1 failed: no NVIDIA driver"),
    Moment(14, 95_000_000, "attempt", "attempt #2"),
    Moment(19, 96_000_000, "finding", "finding C2: parameters never changed"),
    Moment(23, 97_000_000, "failed", "attempt #2 failed in silence"),
    Moment(31, 160_000_000, "ask", "may it run pip install?"),
    Moment(33, 190_000_000, "intervention", "drop_last was missing (operator)"),
    Moment(40, 250_000_000, "claim", "claims L3", "L3"),
    Moment(47, 300_000_000, "level", "measured L1", "L1"),
]


class Gallery(App[None]):
    """One of each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "theme", "Theme"),
        Binding("q", "quit", "Quit"),
    ]
    CSS = """
    #top { height: 1fr; }
    DiffView, #right { width: 1fr; }
    DiffView, LogView, LinePlot { border: round $primary 40%; border-title-color: $foreground; }
    DiffView:focus, LogView:focus, LinePlot:focus { border: round $primary; }
    LogView { height: 1fr; }
    LinePlot { height: 1fr; }
    """

    def __init__(self, theme: str = THEMES[0].name, ascii: bool = False) -> None:
        super().__init__()
        for one in THEMES:
            self.register_theme(one)
        self.theme = theme
        self.ascii = ascii

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield DiffView(DIFF, tags=TAGS, ascii=self.ascii)
            with Vertical(id="right"):
                yield LogView(ascii=self.ascii)
                yield LinePlot(sample_series(), ascii=self.ascii)
        yield Timeline(ascii=self.ascii)

    def on_mount(self) -> None:
        diff = self.query_one(DiffView)
        diff.focus()
        diff.border_title = f"diff · since baseline · {diff.summary}"
        log = self.query_one(LogView)
        log.set_lines(sample_lines(60), "sample")
        log.border_title = "run #7 · attempt"
        self.query_one(LinePlot).border_title = "loss"
        self.query_one(Timeline).set_moments(MOMENTS, 0, 330_000_000, 230_000_000)

    def on_log_view_follow_changed(self, event: LogView.FollowChanged) -> None:
        event.view.border_subtitle = event.text or ("following" if event.follow else "")

    def action_theme(self) -> None:
        """Change to the next theme."""
        names = [one.name for one in THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]


async def _picture(path: Path, width: int, height: int, keys: list[str], app: Gallery) -> None:
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        path.write_text(app.export_screenshot(title="gallery"), encoding="utf-8")


def main() -> None:
    """Run the gallery, or write a picture of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--keys", default="", help="keys to press first, separated by blanks")
    parser.add_argument("--theme", default=THEMES[0].name, choices=[one.name for one in THEMES])
    parser.add_argument("--ascii", action="store_true")
    args = parser.parse_args()
    app = Gallery(args.theme, args.ascii)
    if args.svg is None:
        app.run()
        return
    width, height = (int(part) for part in args.size.split("x"))
    asyncio.run(_picture(args.svg, width, height, args.keys.split(), app))


if __name__ == "__main__":
    main()
