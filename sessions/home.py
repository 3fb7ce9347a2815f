"""Where sessions live: one directory per session under one home, readable by its owner only."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from core.errors import SessionError

DB_NAME = "session.db"

RECORDED = Path(__file__).resolve().parent / "recorded"
"""Sessions that ship with the product, by name: to look at, and to replay without torch."""

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def home() -> Path:
    """The directory of all sessions: ``$PILOTAGE_HOME``, else the platform's data directory.

    It is not created by asking.
    """
    chosen = os.environ.get("PILOTAGE_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("pilotage"))


def new_session_id(title: str) -> str:
    """A new id such as ``melora-1130-a7f3``: the title, month and day, and four random digits.

    Short, since it is typed and stands in narrow columns: 16 letters of the title, whole words
    where that leaves any.
    """
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if len(words) > 16:
        words = words[:17].rpartition("-")[0] or words[:16]
    return f"{words or 'session'}-{time.strftime('%m%d')}-{secrets.token_hex(2)}"


def session_dir(session_id: str) -> Path:
    """The directory of a session id, whether it exists or not.

    Raises :class:`SessionError` where the text can't be an id (and so could leave the home).
    """
    if not _ID.fullmatch(session_id):
        raise SessionError(
            f"{session_id!r} is no session id: an id has lower-case letters, digits and dashes."
        )
    return home() / session_id


def make_private_dir(path: Path) -> None:
    """Make a directory of mode 0700, and its missing parents likewise, whatever the umask."""
    if path.is_dir():
        return
    make_private_dir(path.parent)
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # a umask such as 0277 would have taken the owner's own rights
    except FileExistsError:
        pass  # another process was faster
    except OSError as err:
        raise SessionError(
            f"The directory {path} can't be made ({err.strerror}). Set PILOTAGE_HOME to a "
            "directory you can write to."
        ) from err


def session_ids() -> list[str]:
    """Ids of the directories under the home that hold a session file, sorted."""
    try:
        with os.scandir(home()) as entries:
            return sorted(
                e.name for e in entries if _ID.fullmatch(e.name) and (Path(e) / DB_NAME).is_file()
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as err:
        raise SessionError(
            f"The session directory {home()} can't be read ({err.strerror})."
        ) from err


def find(session_ref: str | Path) -> Path:
    """The session file that a reference names.

    A reference is an id, an unambiguous beginning or last part of one, the path of a session file or of its
    directory, or, where no session of one's own has that id, the name of a recorded one. Raises :class:`SessionError` where it names none or several.
    """
    text = str(session_ref)
    if isinstance(session_ref, Path) or "/" in text or text.endswith(".db"):
        # os.path's questions say no where Path's raise: a name too long, a ~name that is nobody.
        path = Path(os.path.expanduser(text))  # noqa: PTH111
        if os.path.isdir(path):  # noqa: PTH112
            path = path / DB_NAME
        if not os.path.isfile(path):  # noqa: PTH113
            raise SessionError(f"There is no session file {path}.")
        return path.absolute()
    ids = session_ids()
    if text in ids:
        return session_dir(text) / DB_NAME
    if _ID.fullmatch(text) and (RECORDED / text / DB_NAME).is_file():
        return RECORDED / text / DB_NAME
    # The end of an id tells sessions of one project apart, which their beginnings don't.
    matches = [i for i in ids if i.startswith(text) or i.endswith(f"-{text}")] if text else []
    if len(matches) == 1:
        return session_dir(matches[0]) / DB_NAME
    if matches:
        listed = ", ".join(matches[:6]) + (" ..." if len(matches) > 6 else "")
        raise SessionError(f"{text!r} names {len(matches)} sessions: {listed}.")
    known = "There are none yet." if not ids else "`pilotage sessions` lists them."
    raise SessionError(f"There is no session {text!r} in {home()}. {known}")
