"""The program run in place of ``torchrun``: PyTorch's own, which stops when the notebook's kernel ends."""

from __future__ import annotations

import os
import signal
import sys
import threading


def follow_parent() -> None:
    """Terminate this process, and so its ranks, when the other end of standard input is closed.

    A kernel that is restarted is killed, and cannot stop anything itself. The ranks get an empty standard
    input.
    """
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def do_without_libuv() -> None:
    """Patch ``TCPStore`` so that torchrun's own stores obey ``USE_LIBUV=0``, as those of the ranks do.

    PyTorch for Windows is built without libuv, which torchrun requests anyway.
    """
    import torch.distributed

    class TCPStore(torch.distributed.TCPStore):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **{**kwargs, "use_libuv": False})

    torch.distributed.TCPStore = TCPStore


if __name__ == "__main__":
    follow_parent()
    if os.environ.get("USE_LIBUV") == "0":
        do_without_libuv()
    from torch.distributed.run import main

    main(sys.argv[1:])
