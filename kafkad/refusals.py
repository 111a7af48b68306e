"""What people are told when the system refuses something that is asked for a file."""

from __future__ import annotations

import os
import re
import shlex


def failure(doing: str, error: OSError, directory: str) -> str:
    """What failed, with the file, if that is known and `doing` does not name it; and what to do. `directory` is the one
    that is kafkad's, with all that is in it."""
    file = error.filename if isinstance(error.filename, str) and not _names(doing, error.filename) else ""
    return ": ".join(filter(None, (doing, file, error.strerror or str(error)))) + _owner_advice(error, directory)


def _names(text: str, path: str) -> bool:
    """A file in it, or one whose name begins as its, is another one."""
    return re.search(rf"{re.escape(path)}(?![^\s:])", text) is not None


def _owner_advice(error: OSError, directory: str) -> str:
    """Whose the file is, if it is another user's, and what to do about it. The first of the directories above it that
    can be looked at is in the way, if it cannot. `directory` may be missing yet, or out of sight."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return ""
    path = os.path.abspath(error.filename)
    while not os.access(path, os.F_OK):
        path = os.path.dirname(path)
    owner = os.stat(path).st_uid
    if owner == os.geteuid():
        return ""
    user = _user(os.geteuid())
    told = f"{path} belongs to {_user(owner)}, and kafkad runs as {user}"
    ours = os.path.abspath(directory)
    if path == ours or os.path.commonpath((path, ours)) != path:
        return f" ({told}: chown -R {user} {shlex.quote(ours)})"
    if os.access(path, os.X_OK):
        return f" ({told}: install -d -o {user} {shlex.quote(ours)})"
    above = shlex.quote(path)
    return f" ({told}, whom it has to let pass: setfacl -m u:{user}:x {above}, or chmod o+x {above})"


def _user(uid: int) -> str:
    from pwd import getpwuid  # a start does not need it

    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
