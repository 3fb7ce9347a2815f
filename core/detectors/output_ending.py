"""How a saved log ends, from its text alone: an error, a kill, an interrupt, or none of these.

An error counts as the end only if the run did not go on after it: a caught and logged exception
that is followed by steps is no failure. What a launcher says of its dead worker gives way to
what the worker said.
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, field

TRACEBACK = "Traceback (most recent call last)"
#: Lines kept of an error: its exception and what it says.
ERROR_LINES = 20
#: Lines before an exception that are read for the calls it came by; of them without a header.
FRAME_LINES, QUOTED_LINES = 60, 6
#: Longest traceback that is read, in lines.
BLOCK_LINES = 400

_PREFIX = re.compile(
    r"^(?:std(?:err|out): ?|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S{7,40} \[\d{1,4}\] |\[?(?:rank|default)\s?\d+\]?:\s?|\([A-Za-z_]\w* (?:pid|rank)=\d+[^)]{0,60}\)\s|\[\d{1,4}\]:\s?"
    r"|\d+:\s(?=Traceback|\s+File|[A-Z]\w+Error)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,10}\s(?=Traceback|\s*File \"|\s{2,}|(?:\w+\.)*[A-Z]\w+(?:Error|Exception)\b)"
    r"|>{1,3}\s|\s{1,12}(?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception): )|\S{1,120}\.py:\d{1,6}:\s(?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception):)"
    r"|.{0,80}?\b(?:ERROR|CRITICAL|FATAL)\b.{0,60}?(?=\b(?:\w+\.)*[A-Z]\w*(?:Error|Exception): )"
    r"|[A-Za-z_][\w.]{0,60}: (?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception): )"
    r"|E\s{3,7}(?=[A-Za-z_.]+(?:Error|Exception)\b))"
)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*(_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Expired|Conflict|"
    r"NotFound|NotSupported|Unsupported|Failure|Fault|Warning)|Exception(?=:))(?=:|$| \()(.*)"
)
#: After a traceback any dotted name in this place is the exception's.
_NAMED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?=:|$)(.*)")
_NUMERIC = re.compile(r":\s*[-+]?[\d.]+(?:e[-+]?\d+)?\s*(?:%|[|,;(].*)?$", re.IGNORECASE)
_STATUS = re.compile(
    r"\b(?:RESOURCE_EXHAUSTED|UNIMPLEMENTED|INVALID_ARGUMENT|FAILED_PRECONDITION|INTERNAL|"
    r"DEADLINE_EXCEEDED|UNAVAILABLE|ABORTED|DATA_LOSS|PERMISSION_DENIED|UNKNOWN)\b: "
    r"|\b(?:Resource exhausted|Invalid argument|Unimplemented|Failed precondition): "
    r"|Ran out of memory in memory space|Allocation failure: |Program hbm requirement \d|Attempting to (?:allocate|reserve) \d[\d.]*[KMG]|[Ee]xceeded (?:scoped )?\w+ (?:capacity|limit)|compile permanent error"
    r"|CUDA out of memory\.|NRT_RESOURCE|NRT_EXEC|nrt_\w+ failed|NCC_[A-Z0-9]+"
)
_FATAL = re.compile(
    r"^F\d{4} \d\d:\d\d|^F\d{4,8} .{0,60}\]|\bCheck fail(?:ed|ure): |\bCheck failure\b|^terminate called"
    r"|what\(\):|^#?\s*Fatal Python error|std::bad_alloc|^\[?ERROR\]? .{0,40}terminated"
    r"|CUDA error: |NCCL error|Invalid config|\bfatal error: |^FATAL[ :]|^Exception in device=|\bERROR \|\|NEURON\w*\|\||Internal tensorizer error|Internal Compiler Error|^LLVM ERROR: |\.cc:\d+\] Check fail|^CRITICAL[ :]|^neuronx?-cc: ERROR: "
)
_CRASH = re.compile(
    r"Segmentation fault|\bSIG(?:SEGV|ABRT|BUS|FPE|ILL)\b|\bAborted(?:\s*\(core dumped\)|$)|core dumped"
    r"|^Bus error|Illegal instruction|double free or corruption|free\(\): invalid|Floating point exception"
    r"|corrupted size vs"
)
_SHELL = re.compile(
    r"^(?:\S*/)?(?:bash|sh|zsh|dash)?:? ?.{0,80}: (?:command not found|Permission denied|not found)$"
    r"|^\S*python[\d.]*: (?:can't open file|No module named|Error while finding)"
    r"|^\S+: error: |^[Ee]rror: |^ERROR: (?:\S+ is not a supported|Could not|No matching|Cannot|Failed|Ignored)"
    r"|^\[?(?:ERROR|FATAL|CRITICAL)\b.{0,200}\b(?:abort|exit|quit|terminat)(?:ing|ed|s)?\b"
    r"|error: subprocess-exited-with-error|^make(?:\[\d\])?: \*\*\*|ResolutionImpossible"
    r"|has requirement .{1,80}, but you|requires .{1,80}, but you have|cannot open shared object file"
    r"|undefined symbol: |version `?GLIBC\w*_[\d.]+'? not found"
)
_EXITED = re.compile(
    r"(?:exit(?:ed)?|return(?:ed)?|finished|terminated|failed|died|status)\b.{0,30}"
    r"\b(?:exit ?code|code|status|exit status|exitcode)\s*[:=]?\s*\(?(-?\d+)"
    r"|\bexit ?code\s*[:=]?\s*\(?(-?\d+)|non-zero exit status (-?\d+)", re.IGNORECASE
)  # fmt: skip
_KILLED = re.compile(
    r"^(?:\S+: line \d+:\s+\d+ )?Killed\b|^\[\d+\]\s+[-+]?\s*\d+ (?:killed|Killed)\b|\bSIGKILL\b|\bsignal 9\b|\bOOM[- ]?[Kk]illed\b|oom[-_]kill"
    r"|[Nn]otebook tried to allocate more memory than is available|session crashed after using all available RAM|oom_reaper|[Oo]ut of memory: Killed? process|[Kk]illed by (?:the )?(?:kernel|OOM|out-of-memory)"
    r"|(?:exit(?:ed)?|code|status)\W{1,3}(?:code|status)?\W{0,3}(?:137|-9)\b|\*\*\* \[\S{1,80}\] Error 137\b"
)
#: Ended from outside, by a person, a scheduler or a time limit.
_STOPPED = re.compile(
    r"DUE TO TIME LIMIT|DUE TO PREEMPTION|\bCANCELLED AT\b|^Terminated$|\b(?:[Rr]eceived|by) (?:signal )?SIGTERM\b|\bgot SIGTERM\b"
)
#: What a launcher says when something it started failed: it has no words for the cause.
_WRAPPER = re.compile(
    r"ChildFailedError|ProcessExitedException|ProcessRaisedException|CalledProcessError"
    r"|BrokenProcessPool|SystemExit|SpawnException|WorkerCrashed|RayTaskError"
)
_IGNORED = re.compile(r"^(?:Exception ignored in|Error in atexit|Error in sys\.excepthook)")
_AGAIN = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause)"
)
_WARNED = re.compile(
    r": [WI] +\w+/|\bwarn(?:ing)?\b|Warning\b|\bW\d{4} |\bI\d{4} |\bINFO\b|\bDEBUG\b", re.I
)
#: A sign that training goes on: a number of a step, an epoch, a loss; or its good end.
_PROGRESS = re.compile(
    r"\b(?:loss|acc|accuracy|ppl|perplexity|bleu|epoch|step|iter|iteration)\b\W{0,12}\d"
    r"|(?:_loss|_acc|_accuracy)\b\W{0,6}\d"
    r"|\b(?:training|run|job|all) (?:is )?(?:completed?|finished|done)\b|^(?:done|finished)\b"
    r"|\bsaved? (?:model |final )?(?:checkpoint|model)\b|^Successfully (?:installed|built)\b", re.IGNORECASE
)  # fmt: skip
_NOT_PROGRESS = re.compile(r"^wandb:|^\s|\bfail|\berror\b|it/s\]|s/it\]|Error\b", re.IGNORECASE)
#: A line of a program, as an interpreter, a notebook or a traceback cut short shows it.
_CODE = re.compile(
    r"^\s+\S|^\S*-{2,}>|^>>>|(?:[Ss]aving|[Ll]oading|[Rr]esuming)\b.{0,40}\bcheckpoint|^\S+\.py in \w+\(|^<ipython-input|^\s*File \"|^In \[\d+\]|^[\w.]+(?: = [\w.]+)?\(.{0,200}\)\s*$"
)
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)')
_FOREIGN = ("site-packages", "dist-packages", "/lib/python", "pilotage_probe", "<frozen ")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a log ends.

    ``kind``: ``error``, ``killed`` (by the kernel, without a word of the program),
    ``interrupted`` (by a person) or empty. ``error`` is the text the patterns of errors are
    tried on; ``lines`` are indices of the lines that show it; ``place`` is the project's own
    innermost frame; ``frames`` is the text that leads to the error, which names the calls.
    """

    kind: str = ""
    error: str = ""
    lines: list[int] = field(default_factory=list)
    place: str = ""
    frames: str = ""


@dataclass(slots=True)
class _Mark:
    """One error met on the way: where it begins, where its words end, and the words."""

    start: int
    end: int
    kind: str
    error: str
    place: str = ""
    weak: bool = False
    cause: bool = False  # another exception that came of it follows


def ending_of(texts: list[str], cwd: str = "") -> Ending:
    """How a log of these lines ends. Linear in their number."""
    lines = [_PREFIX.sub("", t, count=1) for t in texts]
    marks = _marks(lines, cwd.rstrip("/") + "/" if cwd else "")
    final = _final(lines, marks)
    if not final:
        return Ending()
    errors = [m for m in final if m.kind == "error"]
    strong = [m for m in errors if not m.weak]
    if strong or errors:
        said = _speaking(strong or errors)
        return Ending("error", said.error, _shown(lines, said), said.place, _frames(lines, said))
    last = final[-1]
    return Ending(last.kind, last.error, _shown(lines, last), last.place)


def _speaking(marks: list[_Mark]) -> _Mark:
    """The last error that is not a launcher's word about another one."""
    for mark in reversed(marks):
        if not _WRAPPER.search(mark.error.split("\n", 1)[0]):
            return mark
    return marks[-1]


def _frames(lines: list[str], mark: _Mark) -> str:
    """What stands before the exception's own line: its frames, or code quoted without them."""
    at = next((i for i in range(mark.start, mark.end) if mark.error.startswith(lines[i])), None)
    if not mark.error or at is None:
        return ""
    if at > mark.start:
        return "\n".join(lines[max(mark.start, at - FRAME_LINES) : at])
    start = at
    while start > max(0, at - QUOTED_LINES) and _CODE.search(lines[start - 1]):
        start -= 1
    return "\n".join(lines[start:at])


def _shown(lines: list[str], mark: _Mark) -> list[int]:
    """The lines of the error worth showing: its last few, blanks left out."""
    return [i for i in range(mark.start, mark.end) if lines[i].strip()][-6:]


def _final(lines: list[str], marks: list[_Mark]) -> list[_Mark]:
    """The marks after which nothing went on."""
    inside = bytearray(len(lines))
    for mark in marks:
        for i in range(mark.start, min(mark.end, len(lines))):
            inside[i] = 1
    last = -1
    for i in range(len(lines) - 1, -1, -1):
        if not inside[i] and _goes_on(lines[i]):
            last = i
            break
    return [m for m in marks if m.start > last]


def _goes_on(text: str) -> bool:
    return bool(_PROGRESS.search(text)) and not _NOT_PROGRESS.search(text)


def _marks(lines: list[str], cwd: str) -> list[_Mark]:
    marks: list[_Mark] = []
    i = 0
    while i < len(lines):
        mark = _mark(lines, i, cwd)
        if mark is None:
            i += 1
            continue
        if mark.kind:
            marks.append(mark)
        i = max(i + 1, mark.end)
    return marks


def _mark(lines: list[str], i: int, cwd: str) -> _Mark | None:
    """The error that begins in line ``i``, if one does; without a kind: skip its lines."""
    text = lines[i]
    if TRACEBACK in text:
        return _traceback(lines, i, cwd)
    if _IGNORED.match(text):
        start = next((k for k in range(i, min(i + 3, len(lines))) if TRACEBACK in lines[k]), None)
        end = _traceback(lines, start, cwd).end if start is not None else i + 1
        return _Mark(i, end, "", "")
    found = _EXCEPTION.match(text)
    if found and _is_exception(found[1], found[2]):
        return _said(lines, i, i, found[1])
    if _STOPPED.search(text):
        return _Mark(i, i + 1, "interrupted", text)
    if _KILLED.search(text) and not _WARNED.search(text):
        return _Mark(i, i + 1, "killed", text)
    if _WARNED.search(text):
        return None
    if _STATUS.search(text) or _FATAL.search(text):
        return _said(lines, i, i, "")
    if _SHELL.search(text):
        return _Mark(i, i + 1, "error", text)
    if _CRASH.search(text):
        return _Mark(i, i + 1, "error", text, weak=True)
    exited = _EXITED.search(text)
    if exited and next((g for g in exited.groups() if g), "0").strip("-") not in ("0", ""):
        return _Mark(i, i + 1, "error", text, weak=True)
    return None


def _is_exception(name: str, rest: str) -> bool:
    """Whether ``Name: rest`` is an error and neither a warning nor a metric of that name."""
    if name.endswith("Warning"):
        return False
    return hasattr(builtins, name) or not _NUMERIC.match(rest)


def _said(lines: list[str], start: int, at: int, name: str, place: str = "") -> _Mark:
    """An error whose words begin in line ``at``: they go on to the next blank or mark."""
    end = at + 1
    while end < len(lines) and end - at < ERROR_LINES:
        if TRACEBACK in lines[end] or _AGAIN.match(lines[end]) or _goes_on(lines[end]):
            break
        if _EXCEPTION.match(lines[end]) or _KILLED.search(lines[end]):
            break
        end += 1
    kind = "interrupted" if name == "KeyboardInterrupt" else "error"
    if name in ("SystemExit", "GeneratorExit") and _NUMERIC.sub("", lines[at]) == "SystemExit":
        kind = "" if lines[at].strip() in ("SystemExit: 0", "SystemExit") else kind
    error = "\n".join(lines[at:end])
    return _Mark(start, end, kind, error, place)


def _traceback(lines: list[str], start: int, cwd: str) -> _Mark:
    """The traceback that begins in line ``start``, with its exception."""
    place = ""
    i = start + 1
    stop = min(len(lines), start + BLOCK_LINES)
    notebook = not lines[start].lstrip().startswith("Traceback")
    while i < stop:
        text = lines[i]
        frame = _FRAME.match(text)
        if frame:
            if not any(part in frame[1] for part in _FOREIGN):
                place = f"{frame[1].removeprefix(cwd)}:{frame[2]}"
        elif TRACEBACK in text:
            break
        elif text.strip() and not text[0].isspace():
            named = (_EXCEPTION if notebook else _NAMED).match(text)
            if named and not named[1].endswith("Warning"):
                return _said(lines, start, i, named[1], place)
        i += 1
    return _Mark(start, i, "error", "", place)  # cut off before its exception
