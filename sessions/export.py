"""Exports of a session's tables as CSV, JSON Lines and Markdown.

Each export is derived from the log at that moment, whatever the tables in the file say, and
states what it stands for: the session, the range of events, and the chain's head hash. In CSV
and JSON Lines these are the last four columns of every row, so that ``pandas.read_csv`` and
``jq`` need no special case; in Markdown they are the line under the title. The columns are those of
the derived table (``sessions.tables`` documents each), with what ``EXPORTS`` adds.
The same log exported twice gives the same bytes.

Text in a log is a stranger's text. A CSV cell never starts a formula in a spreadsheet, and no
format holds a control character but a line break or a tab.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from core.errors import SessionError
from core.text import clean_block
from sessions.derive import Derived, derive
from sessions.log import EventLog
from sessions.tables import BY_NAME

FORMATS = ("csv", "jsonl", "markdown")

PROVENANCE = ("session_id", "log_from_seq", "log_to_seq", "log_chain_hash")


@dataclass(frozen=True, slots=True)
class Export:
    """One thing that can be exported: its table, more columns, and the columns of its Markdown."""

    table: str
    more: tuple[str, ...]
    brief: tuple[str, ...]
    doc: str


EXPORTS: dict[str, Export] = {
    "interventions": Export(
        "intervention",
        ("history",),
        ("at", "kind", "category", "necessity", "level_before", "level_after",
         "minutes_claimed", "author", "voided", "text"),
        "The intervention log, voided ones included. `history` is JSON: every recording, "
        "amendment, voiding and restoring with its event, time, author and values.",
    ),
    "attempts": Export(
        "attempt",
        ("at", "command", "target", "chips", "duration_s", "reason", "exit_code", "signal",
         "max_rss_mb", "steps"),
        ("number", "at", "outcome", "exit_code", "duration_s", "outcome_text", "tree"),
        "The runs of the migrated code and how they came out, with the columns of `run`.",
    ),
    "checks": Export(
        "check_result",
        ("runs", "reference_runs"),
        ("seq", "level", "check_name", "state", "summary", "tolerance", "tree"),
        "Every evaluation of every check; the runs it rests on are separated by blanks.",
    ),
    "findings": Export(
        "finding",
        (),
        ("at", "category", "title", "silent", "run_id", "detector", "resolved"),
        "What detectors saw, with the detector's category and the operator's.",
    ),
    "runs": Export(
        "run", (), ("number", "purpose", "of", "at", "reason", "exit_code", "duration_s", "command"),
        "Every execution of a command: references, attempts and parity runs.",
    ),
    "levels": Export("level", (), ("at", "level", "tree", "text"), "Every measured level."),
    "claims": Export("claim", (), ("at", "level", "tree", "text"), "Every level claimed."),
    "usage": Export(
        "usage", (), ("at", "model", "input_tokens", "output_tokens", "usd"),
        "Tokens and price of every request of the agent.",
    ),
    "asks": Export(
        "ask", (), ("at", "tool", "question", "decision", "author", "waited_s"),
        "What the agent asked the operator, and the answers.",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Provenance:
    """What an export stands for; returned so that a caller can say it beside the file too."""

    session_id: str
    from_seq: int
    to_seq: int
    chain_hash: str
    rows: int


def columns(what: str) -> tuple[str, ...]:
    """The columns of an export's CSV and JSON Lines, in their order."""
    chosen = _chosen(what)
    return (*BY_NAME[chosen.table].names, *chosen.more, *PROVENANCE)


def export(path: Path, what: str, fmt: str, out: TextIO) -> Provenance:
    """Write one of ``EXPORTS`` of a session file to ``out``, in one of ``FORMATS``.

    Raises :class:`SessionError` for a name that is neither, or a file that can't be read.
    """
    chosen = _chosen(what)
    if fmt not in FORMATS:
        raise SessionError(f"There is no export format {fmt!r}: choose {', '.join(FORMATS)}.")
    with EventLog.read(path) as log:
        derived = derive(log.events())
    opened = derived.state.opened
    rows = _rows(derived, chosen)
    about = Provenance(
        session_id=opened.session_id if opened else "",
        from_seq=derived.first_seq,
        to_seq=derived.state.seq,
        chain_hash=derived.head_hash,
        rows=len(rows),
    )
    stated = dict(
        zip(
            PROVENANCE,
            (about.session_id, about.from_seq, about.to_seq, about.chain_hash),
            strict=True,
        )
    )
    if fmt == "csv":
        writer = csv.writer(out, lineterminator="\n")
        names = columns(what)
        writer.writerow(names)
        for row in rows:
            row = row | stated
            writer.writerow([cell(row[name]) for name in names])
    elif fmt == "jsonl":
        for row in rows:
            # ASCII only: it escapes every character that a terminal could take for a command.
            out.write(json.dumps(row | stated, ensure_ascii=True, separators=(", ", ": ")) + "\n")
    else:
        _markdown(out, what, chosen, rows, about)
    return about


def export_file(path: Path, what: str, fmt: str, output: Path | None = None) -> Provenance:
    """The same into a file, which is only replaced when all is written; None: standard output."""
    text = io.StringIO()
    about = export(path, what, fmt, text)
    if output is None:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.getvalue().encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
        return about
    try:
        _write_whole(text.getvalue(), output)
    except OSError as err:
        raise SessionError(f"{output} can't be written ({err.strerror}).") from err
    return about


def _write_whole(text: str, output: Path) -> None:
    """Write all of it or leave what was there; raises OSError."""
    place = output.resolve()  # a link stays one: what it points to is written
    if place.exists() and not place.is_file():
        # A device, a pipe, /dev/stdout: to be written to, and never to be replaced by a file.
        with open(place, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(place)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def as_object(path: Path, what: str) -> dict[str, Any]:
    """One of ``EXPORTS`` as one JSON object: what it stands for, its columns, and its rows."""
    lines = io.StringIO()
    about = export(path, what, "jsonl", lines)
    return {
        "what": what,
        **asdict(about),
        "columns": list(columns(what)),
        "rows": [json.loads(line) for line in lines.getvalue().splitlines()],
    }


def _chosen(what: str) -> Export:
    if what not in EXPORTS:
        raise SessionError(f"There is no export {what!r}: choose {', '.join(EXPORTS)}.")
    return EXPORTS[what]


def _rows(derived: Derived, chosen: Export) -> list[dict[str, Any]]:
    rows = derived.dicts(chosen.table)
    if chosen.table == "intervention":
        history: dict[str, list[dict[str, Any]]] = {}
        for change in derived.dicts("intervention_change"):
            item = {k: v for k, v in change.items() if v is not None and k != "intervention_id"}
            if "changes" in item:
                item["changes"] = json.loads(item["changes"])
            history.setdefault(change["intervention_id"], []).append(item)
        for row in rows:
            row["history"] = history.get(row["intervention_id"], [])
    elif chosen.table == "attempt":
        runs = {run["run_id"]: run for run in derived.dicts("run")}
        for row in rows:
            row.update({name: runs[row["run_id"]][name] for name in chosen.more})
    elif chosen.table == "check_result":
        used: dict[tuple[int, str], list[str]] = {}
        for item in derived.dicts("check_run"):
            used.setdefault((item["seq"], item["role"]), []).append(item["run_id"])
        for row in rows:
            row["runs"] = " ".join(used.get((row["seq"], "run"), []))
            row["reference_runs"] = " ".join(used.get((row["seq"], "reference"), []))
    return rows


# --- cells -----------------------------------------------------------------------------------

# OWASP's list of what starts a formula, with the full-width forms that some spreadsheets take.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(value: Any) -> str | int | float:
    """A value as a CSV cell: numbers stay numbers, null is empty, text can't be a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, ensure_ascii=False)
    text = clean_block(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _markdown(
    out: TextIO, what: str, chosen: Export, rows: list[dict[str, Any]], about: Provenance
) -> None:
    out.write(f"## {what.capitalize()}\n\n")
    out.write(
        f"Session {_cell_md(about.session_id)}, events {about.from_seq} to {about.to_seq}, "
        f"chain head `{about.chain_hash}`.\n\n"
    )
    out.write("| " + " | ".join(name.replace("_", " ") for name in chosen.brief) + " |\n")
    out.write("|" + " --- |" * len(chosen.brief) + "\n")
    for row in rows:
        out.write("| " + " | ".join(_cell_md(row[name]) for name in chosen.brief) + " |\n")


_MARKUP = re.compile(r"[\\`*_{}\[\]<>|#~$]")


def _cell_md(value: Any) -> str:
    """A value in a Markdown table: its markup escaped, its line breaks as ``<br>``."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = _MARKUP.sub(lambda m: "\\" + m[0], clean_block(value))
    return text.replace("\n", "<br>")
