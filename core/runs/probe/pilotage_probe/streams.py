"""Standard output and error of a rank, in pipes of its own.

The processes that torchrun or ``spawn`` starts share the two pipes of the run, and nobody can
tell any more which of them printed a line. A process that is one of several makes pipes of its
own, hands the launcher the ends to read from, and only once the launcher has said that it has
them puts the others in the place of its descriptors 1 and 2. Real pipes, so everything that is
written or inherited goes the same way; when the launcher does not answer, all stays as it was.
"""

import os

ANSWER_S = 10.0  # for the launcher to answer; where there is none, connecting fails at once


def begin(argv):
    """Take pipes of this process's own, if it is one of several; ``argv`` is its command line."""
    path = os.environ.get("PILOTAGE_PROBE_SOCKET")
    shared = _shared(os.environ.get("PILOTAGE_PROBE_PIPES", ""))
    if not path or not shared or not _is_one_of_several(argv):
        return
    found = {}  # stream: descriptors that lead to the run's own pipe of that name
    for fd in (1, 2):
        stream = shared.get(_identity(fd))
        if stream:
            found.setdefault(stream, []).append(fd)
    if found:
        _move(path, found)


def _shared(text):
    pipes = {}
    for part in text.split():
        name, _, identity = part.partition("=")
        pipes[identity] = name
    return pipes


def _identity(fd):
    try:
        about = os.fstat(fd)
    except OSError:  # closed
        return None
    return "%d:%d" % (about.st_dev, about.st_ino)


def _is_one_of_several(argv):
    size, rank = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    if rank.isdigit() and size.isdigit() and int(size) > 1:
        return True
    # What multiprocessing starts for its `spawn` method; its helpers have other command lines.
    return "--multiprocessing-fork" in argv and any("spawn_main" in word for word in argv)


def _move(path, found):
    streams = sorted(found, reverse=True)  # stdout first
    readers, writers = [], []
    try:
        for _ in streams:
            reader, writer = os.pipe()
            readers.append(reader)
            writers.append(writer)
        if _hand_over(path, streams, readers):
            for stream, writer in zip(streams, writers):
                for fd in found[stream]:
                    os.dup2(writer, fd)
    finally:
        for fd in readers + writers:
            os.close(fd)


def _hand_over(path, streams, readers):
    import array  # here, so that a process alone loads nothing that it does not use
    import json
    import socket

    rank = os.environ.get("RANK", "")
    header = {
        "pid": os.getpid(),
        "rank": int(rank) if rank.isdigit() else None,
        "streams": streams,
    }
    fds = array.array("i", readers)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.settimeout(ANSWER_S)
            # An address has at most 108 bytes, which a path may exceed.
            line.connect("/proc/self/fd/%d/%s" % (directory, os.path.basename(path)))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
            line.sendmsg([json.dumps(header).encode()], rights)
            return line.recv(1) == b"+"
    except OSError:  # nobody listens, or answers in time
        return False
    finally:
        os.close(directory)
