"""Resources that a machine can run out of (disk space, threads, memory, …), explained in one sentence."""

from __future__ import annotations

import errno
import os
import sys

_NO_THREAD = "can't start new thread"
"""Python's own message: it has no class for this error."""

_FEWER = "end some, raise the limit (ulimit -u), or use fewer (MNEMOS_CORES=1)"


_LESS = "engine.device=cpu, a smaller model, a smaller local.batch or a lower participation needs less"


def shortage(error: BaseException) -> str | None:
    """What is missing and what to do about it; None if the error has another cause."""
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return f"the system has no room for another thread; {_FEWER}"
    if not isinstance(error, OSError):
        return _device_memory(error)
    where = f" for {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk has no room left{where} ({error.strerror}); free some"
    if error.errno == errno.EFBIG:
        return f"a file would be larger than the system allows{where} (ulimit -f)"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too many files are open{where} (ulimit -n)"
    if error.errno in (errno.EAGAIN, errno.ENOMEM) and error.strerror == os.strerror(error.errno):
        return f"the system has no room for another process; {_FEWER}"
    return None


def _device_memory(error: BaseException) -> str | None:
    """The sentence for a device without memory, also if a client's error was caused by that."""
    if "torch" not in sys.modules:  # which takes seconds to import, and without it there are no devices
        return None
    from mnemos.common.devices import is_out_of_memory, out_of_memory

    found = next((cause for cause in (error, error.__cause__) if cause and is_out_of_memory(cause)), None)
    return None if found is None else f"{out_of_memory(found)}; {_LESS}"
