"""The derived tables and views of a session file, for people who open it with other tools.

They hold nothing that the ``event`` table does not: ``pilotage rebuild`` makes them again, and
``sqlite-utils``, ``datasette`` or ``pandas.read_sql`` read them. Times named ``at`` are UTC in
ISO 8601, those named ``_us`` microseconds since 1970; durations say their unit. ``seq`` is the
event in which the row's thing began. Truth values are 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

DERIVED_VERSION = 2
"""Raised with any change below; a file with another number has its tables made from nothing."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its SQLite declaration (STRICT types) and what it means."""

    name: str
    declaration: str
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """A derived table; ``columns`` in the order of its rows."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(c.name for c in self.columns)

    @property
    def sql(self) -> str:
        """The CREATE TABLE statement, with the documentation in it as comments."""
        lines = []
        for i, c in enumerate(self.columns):
            comma = "," if i + 1 < len(self.columns) else ""
            lines.append(f"  {_quoted(c.name)} {c.declaration}{comma} -- {c.doc}")
        return f"CREATE TABLE {self.name} ( -- {self.doc}\n" + "\n".join(lines) + "\n) STRICT"

    @property
    def insert(self) -> str:
        """The INSERT statement with a place for each column."""
        places = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.name} ({', '.join(map(_quoted, self.names))}) VALUES ({places})"

    @property
    def select(self) -> str:
        """The SELECT statement of all rows in the order they were derived in."""
        return f"SELECT {', '.join(map(_quoted, self.names))} FROM {self.name} ORDER BY rowid"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _table(name: str, doc: str, columns: str) -> Table:
    """A table from lines ``name | declaration | doc``."""
    parsed = []
    for line in columns.strip().splitlines():
        column, declaration, text = (part.strip() for part in line.split("|", 2))
        parsed.append(Column(column, declaration, text))
    return Table(name, doc, tuple(parsed))


_RUN = "TEXT REFERENCES run(run_id)"

TABLES: tuple[Table, ...] = (
    _table(
        "session",
        "one row: the session as it stands at the last event taken in",
        """
session_id | TEXT | its id
title | TEXT | its title
project | TEXT | the project that is migrated
pilotage_version | TEXT | the release that opened it
opened_at | TEXT | time of the first event
last_at | TEXT | time of the last event
phase | TEXT | what the agent does: working, waiting, paused, finished, failed ...
agent | TEXT | the agent's driver
model | TEXT | the agent's model
claimed_level | INTEGER | the level the agent last claimed; null: it claimed none
measured_level | INTEGER | the level last measured; -1: none
usd | REAL | agent dollars; null: not every price is known
usd_at_least | REAL | agent dollars of the requests whose price is known
unpriced_requests | INTEGER | requests of the agent whose price is not known
span_s | REAL | seconds from the first event to the last
agent_s | REAL | seconds the agent worked
blocked_s | REAL | seconds the agent waited on the operator
working_active_s | REAL | seconds: agent at work, operator active (at a gap of 180 s)
working_away_s | REAL | seconds: agent at work, operator not active
idle_active_s | REAL | seconds: agent not at work, operator active
idle_away_s | REAL | seconds: agent not at work, operator not active
""",
    ),
    _table(
        "run",
        "every execution of a command",
        """
run_id | TEXT PRIMARY KEY | its id
seq | INTEGER NOT NULL | the event run.started
number | INTEGER | counts all runs of the session from 1
purpose | TEXT | reference, attempt or parity
of | TEXT | what a parity run stands for: reference or target
command | TEXT | the command
target | TEXT | the hardware that was asked for
chips | INTEGER | number of chips that was asked for
tree | TEXT | git tree it ran on
probe_mode | TEXT | how the probe was set
at | TEXT | time of the start
at_us | INTEGER | the same, microseconds
ended_at | TEXT | time of the end; null: no end is on record
ended_seq | INTEGER | the event run.ended
duration_s | REAL | seconds from start to end
reason | TEXT | exited, signalled, stopped, time limit, cut off, not started
exit_code | INTEGER | null unless the process ended by itself
signal | TEXT | name of the signal that ended it
cause | TEXT | what stands behind the end where it is known or likely: out of memory, terminated ...
max_rss_mb | REAL | largest resident memory of its processes, MB
steps | INTEGER | optimizer steps the probe recorded
lines | INTEGER | lines of output that it printed
lines_not_stored | INTEGER | those of them that are not in the log: see run_note
stalls | INTEGER | how many times it went without output and without a step for too long
metric | REAL | the project's metric as it was read when the run had ended; null: none was found, or it is nan
metric_source | TEXT | the line of output or the result file it was read from
metric_how | TEXT | the pattern, reader or key that matched
metric_problem | TEXT | why no metric was found
""",
    ),
    _table(
        "attempt",
        "the runs of the migrated code, with how they came out",
        f"""
run_id | {_RUN} | the run
number | INTEGER | counts attempts from 1
seq | INTEGER NOT NULL | the event run.started
tree | TEXT | git tree it ran on
outcome | TEXT | passed, loud or silent (failed with or without an error), unverified, stopped, cut off, running
outcome_text | TEXT | the same in words
findings | INTEGER | findings on this run that the operator has not closed
silent_findings | INTEGER | those of them that no error gave away
failed_checks | INTEGER | checks of L0 to L3 on this run that failed when last evaluated
interventions | INTEGER | interventions since the attempt before, not voided
""",
    ),
    _table(
        "check_result",
        "every evaluation of a check; the last one per check counts",
        """
seq | INTEGER PRIMARY KEY | the event check.evaluated
at | TEXT | time
check_name | TEXT | name of the check
level | INTEGER | level of the ladder it belongs to
state | TEXT | pass, fail, not run or waived
summary | TEXT | the result in a sentence
expected | TEXT | what was expected
actual | TEXT | what was found
tolerance | TEXT | how far they may differ
reason | TEXT | why it was not run, or was waived
tree | TEXT | git tree it holds for
command | TEXT | command it holds for
criteria | TEXT | hash of the criteria it holds for
chips | INTEGER | number of chips it holds for
author | TEXT | who waived it
""",
    ),
    _table(
        "check_run",
        "which runs a check result rests on",
        f"""
seq | INTEGER NOT NULL REFERENCES check_result(seq) | the check result
run_id | {_RUN} | the run
role | TEXT | run or reference
""",
    ),
    _table(
        "level",
        "every measurement of the level",
        """
seq | INTEGER PRIMARY KEY | the event level.measured
at | TEXT | time
level | INTEGER | 0 to 4; -1: none
tree | TEXT | git tree it holds for
text | TEXT | the reason in words
""",
    ),
    _table(
        "claim",
        "every level the agent said it had reached; nothing was measured by it",
        """
seq | INTEGER PRIMARY KEY | the event agent.claimed
at | TEXT | time
level | INTEGER | the level claimed
tree | TEXT | git tree at that time
text | TEXT | the agent's words
""",
    ),
    _table(
        "finding",
        "what detectors saw",
        f"""
finding_id | TEXT PRIMARY KEY | its id
seq | INTEGER NOT NULL | the event finding.opened
at | TEXT | time
run_id | {_RUN} | the run it was seen on
tree | TEXT | git tree of that run
detector | TEXT | what saw it
detected_category | TEXT | the detector's category
category | TEXT | the present category: the operator's, where given
recategorised_by | TEXT | who gave it
title | TEXT | what it is
evidence | TEXT | what the detector saw, a line each
threshold | TEXT | the threshold, with its source
next_step | TEXT | what to do about it
silent | INTEGER | 1: no error gave it away
resolved | TEXT | why it was closed; null: it is open
resolved_seq | INTEGER | the event finding.resolved
""",
    ),
    _table(
        "intervention",
        "acts of the operator that changed the agent's input, permissions, workspace or environment",
        f"""
intervention_id | TEXT PRIMARY KEY | its id
seq | INTEGER NOT NULL | the event intervention.recorded
at | TEXT | time of the key press or act
at_us | INTEGER | the same, microseconds
written_at | TEXT | time at which its words were stored
run_id | {_RUN} | the run at that time
tree | TEXT | git tree at that time
tree_after | TEXT | the next other git tree; null: there is none yet
level_before | INTEGER | measured level at that time; -1: none
level_after | INTEGER | the next level measured; null: there is none yet
kind | TEXT | kind of act
trigger | TEXT | what led to it
category | TEXT | failure category C1 to C6
necessity | TEXT | whether the agent could have gone on without it
text | TEXT | the operator's words
minutes_claimed | REAL | minutes as the operator puts them; null: not stated
subset | INTEGER | 1: counted as part of another intervention
author | TEXT | who
automatic | INTEGER | 1: opened by the cockpit for an act such as a message
voided | INTEGER | 1: it does not count
changes | INTEGER | amendments, voidings and restorings; see intervention_change
""",
    ),
    _table(
        "intervention_change",
        "the history of the interventions",
        """
seq | INTEGER PRIMARY KEY | the event
intervention_id | TEXT NOT NULL REFERENCES intervention(intervention_id) | the intervention
at | TEXT | time
what | TEXT | recorded, amended, voided or restored
changes | TEXT | JSON: the new values
reason | TEXT | why it was voided
author | TEXT | who
""",
    ),
    _table(
        "ask",
        "what the agent asked the operator",
        """
ask_id | TEXT PRIMARY KEY | its id
seq | INTEGER NOT NULL | the event agent.asked
at | TEXT | time
question | TEXT | the question
tool | TEXT | the tool it wants to use, if it asks for permission
decision | TEXT | allow, deny or edit; null: not answered
reason | TEXT | the operator's reason
author | TEXT | who answered
waited_s | REAL | seconds until the answer
""",
    ),
    _table(
        "usage",
        "tokens and price of every request of the agent",
        """
seq | INTEGER PRIMARY KEY | the event agent.used
at | TEXT | time
model | TEXT | model
request_id | TEXT | the provider's id
input_tokens | INTEGER | input tokens, cache not included
cache_write_5m_tokens | INTEGER | written to the five-minute cache
cache_write_1h_tokens | INTEGER | written to the one-hour cache
cache_read_tokens | INTEGER | read from the cache
output_tokens | INTEGER | output tokens
usd | REAL | price by the table; null: not known
reported_usd | REAL | price as the agent reported it
price_table | TEXT | the price table and its version
""",
    ),
    _table(
        "snapshot",
        "states of the worktree",
        """
seq | INTEGER PRIMARY KEY | the event tree.snapshotted
at | TEXT | time
tree | TEXT | git tree
commit_id | TEXT | commit of the shadow ref
cause | TEXT | what led to it
files | INTEGER | files that differ from the baseline
added | INTEGER | lines added against the baseline
removed | INTEGER | lines removed
""",
    ),
    _table(
        "operator_signal",
        "raw signs of the operator at a console; how minutes are counted from them is a rule",
        """
seq | INTEGER PRIMARY KEY | the event
at_us | INTEGER | time, microseconds
mono_us | INTEGER | monotonic clock, microseconds; compare within one boot_id
boot_id | TEXT | boot of the machine
console_id | TEXT | the console
what | TEXT | attached, detached, paused, resumed or beat
""",
    ),
    _table(
        "operator_time",
        "the operator's active minutes, by the longest gap between two acts that still counts",
        """
gap_s | INTEGER PRIMARY KEY | seconds between two acts up to which the time between counts
tail_s | INTEGER | seconds counted after the last act
active_minutes | REAL | minutes
""",
    ),
    _table(
        "run_sample",
        "what the processes of a run used, every 10 s and at large changes",
        f"""
seq | INTEGER NOT NULL | the event run.sampled
at | TEXT | its time
run_id | {_RUN} | the run
rss_mb | REAL | resident memory of all its processes, MiB; shared pages count for each
swap_mb | REAL | what of them is swapped out, MiB
processes | INTEGER | number of processes
""",
    ),
    _table(
        "host_sample",
        "the machine during a run, every 10 s",
        f"""
seq | INTEGER NOT NULL | the event host.sampled
at | TEXT | its time
run_id | {_RUN} | the run that went on
cpu_pct | REAL | percent of all CPUs' time since the sample before
load1 | REAL | load average over one minute
mem_used_mb | REAL | memory that is not available, MiB
mem_total_mb | REAL | memory, MiB
swap_used_mb | REAL | swap in use, MiB
disk_free_mb | REAL | room on the disk of the worktree, MiB
""",
    ),
    _table(
        "chip_sample",
        "a TPU chip during a run, as tpu-info tells",
        f"""
seq | INTEGER NOT NULL | the event host.sampled
at | TEXT | its time
run_id | {_RUN} | the run that went on
chip | INTEGER | the chip's number on this machine, from 0
kind | TEXT | v5e, v6e ...
hbm_used_mb | REAL | memory of the chip in use, MiB; null: not known
hbm_total_mb | REAL | memory of the chip, MiB
duty_pct | REAL | percent of the time in which the chip was at work
pids | TEXT | processes that hold it
""",
    ),
    _table(
        "run_note",
        "what is to be said of a run besides its output: silence, lost output, unwatched processes",
        f"""
seq | INTEGER NOT NULL | the event it is in
at | TEXT | its time
run_id | {_RUN} | the run
kind | TEXT | stalled, silent compile, went on, output not stored, unwatched, notice, telemetry
text | TEXT | the sentence
""",
    ),
    _table(
        "moment",
        "the points of the timeline",
        """
id | INTEGER PRIMARY KEY | counts from 1
seq | INTEGER NOT NULL | the event
at | TEXT | time
kind | TEXT | attempt, finding, level, claim, intervention, ask, marker ...
label | TEXT | what the timeline shows
ref | TEXT | id of the thing
""",
    ),
)

VIEWS: dict[str, str] = {
    "effort_by_kind": """CREATE VIEW effort_by_kind AS
SELECT kind, count(*) AS interventions, sum(minutes_claimed) AS minutes_claimed,
  sum(automatic) AS automatic, sum(subset) AS subset
FROM intervention WHERE NOT voided GROUP BY kind ORDER BY kind""",
    "effort_by_category": """CREATE VIEW effort_by_category AS
SELECT category, count(*) AS interventions, sum(minutes_claimed) AS minutes_claimed
FROM intervention WHERE NOT voided GROUP BY category ORDER BY category""",
    "attempts_by_outcome": """CREATE VIEW attempts_by_outcome AS
SELECT outcome, count(*) AS attempts FROM attempt GROUP BY outcome ORDER BY outcome""",
    "findings_by_category": """CREATE VIEW findings_by_category AS
SELECT category, count(*) AS findings, sum(silent) AS silent, sum(resolved_seq IS NULL) AS open
FROM finding GROUP BY category ORDER BY category""",
    "cost_by_model": """CREATE VIEW cost_by_model AS
SELECT model, count(*) AS requests, sum(input_tokens) AS input_tokens,
  sum(cache_write_5m_tokens + cache_write_1h_tokens) AS cache_write_tokens,
  sum(cache_read_tokens) AS cache_read_tokens, sum(output_tokens) AS output_tokens,
  sum(usd) AS usd, sum(usd IS NULL) AS unpriced_requests
FROM usage GROUP BY model ORDER BY model""",
    "check_latest": """CREATE VIEW check_latest AS
SELECT * FROM check_result
WHERE seq IN (SELECT max(seq) FROM check_result GROUP BY check_name)
ORDER BY level, check_name""",
}

META = """CREATE TABLE derived_meta ( -- what the derived tables were made from
  version INTEGER NOT NULL, -- version of their layout
  upto_seq INTEGER NOT NULL, -- the last event taken in
  head_hash TEXT NOT NULL -- its hash
) STRICT"""

BY_NAME = {t.name: t for t in TABLES}
