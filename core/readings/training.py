"""Training progress in the output of any project: one line in, its numbers out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from core.readings.bars import is_bar, read_bar
from core.readings.dicts import read_dict
from core.readings.pairs import read_pairs
from core.readings.prefixes import strip_prefixes
from core.readings.reading import MAX_CHARS as MAX_CHARS
from core.readings.reading import Reading as Reading
from core.readings.reading import tidy_name as tidy_name
from core.readings.tables import Columns, read_row
from core.text import clean

#: The readers, in the order they are tried; ``[metric] reader`` names one of them.
READERS = (
    "json",
    "hf dict",
    "torchtune",
    "lightning bar",
    "tqdm postfix",
    "tqdm bar",
    "keras bar",
    "table row",
    "key value",
)
#: Readings that a series holds at most; of more, every second older one is left out.
MAX_READINGS = 20_000

#: A line without any of these is no reading, whatever else it is: most lines end here. Searching
#: for each is ten times as fast as one pattern for all.
_NEEDLES = tuple(
    "loss acc ppl perplex epoch step iter it/ it] batch bleu rouge f1 auc iou dice wer cer mse mae "
    "mape psnr ssim lpips fid elbo nll bpc bpb bpd rew return r2 recall precision score err norm "
    "map mrr ndcg mcc pearson spearman chrf meteor match mfu update top /s s/ xent entropy ap50 "
    "ap75 mpjpe em: em= kl".split()
)
_HAS_NUMBER = re.compile(r"\d|nan|inf")
#: XLA's own reports, tracebacks, warnings with their place, dumps of settings.
_NOT_TRAINING = re.compile(
    r"\s*(?:pt-xla-profiler|(?:Post )?Compilation Analysis|Execution Analysis|Metric: |Counter: "
    r"|Percentiles: |File \"|Traceback |\w{0,40}(?:Namespace|Config|Arguments|Args)\()"
    r"|.{0,300}(?:\.py:\d{1,6}: \w{0,40}Warning|\w(?:Error|Exception): )"
)


def read_line(text: str) -> Reading | None:
    """What a line says of training, or null: see :class:`Reading`.

    Only what is printed counts. A line of prose, of settings or of a report gives null; of a line
    that was overwritten (``\\r``) the last part that is there counts.
    """
    text = _last_part(text[:MAX_CHARS])
    low = text.lower()
    if not any(needle in low for needle in _NEEDLES) or not _HAS_NUMBER.search(low):
        return None
    text = clean(text)
    if _NOT_TRAINING.match(text):
        return None
    line = strip_prefixes(text)
    reading = read_dict(line) or read_bar(line)
    if reading is not None or is_bar(line):
        return reading
    return read_row(line) or read_pairs(line)


class LineReader:
    """Reads lines in their order, and so also rows of numbers under a row of names."""

    def __init__(self) -> None:
        self._columns = Columns()

    def read(self, text: str) -> Reading | None:
        """What the next line says of training, or null."""
        reading = read_line(text)
        if reading is not None and reading.values:
            return reading
        line = strip_prefixes(clean(_last_part(text[:MAX_CHARS])))
        return self._columns.read(line) or reading


def _last_part(text: str) -> str:
    if "\r" not in text:
        return text
    return next((p for p in reversed(text.split("\r")) if p.strip()), "")


def series(lines: Iterable[str], limit: int = MAX_READINGS) -> list[Reading]:
    """The readings of many lines, in order, each with the index of its line.

    Of more than ``limit`` readings, every second of the older ones is left out, so that the whole
    course is there; the last reading always is.
    """
    reader, found = LineReader(), list[Reading]()
    for index, text in enumerate(lines):
        reading = reader.read(text)
        if reading is None:
            continue
        if len(found) >= max(limit, 2):
            del found[1::2]
        found.append(replace(reading, line=index))
    return found
