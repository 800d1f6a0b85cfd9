"""What runs as torchrun: PyTorch's own, ended when the notebook's kernel ends."""

from __future__ import annotations

import os
import signal
import sys
import threading


def follow_parent() -> None:
    """End this process, and so its ranks, when the other end of standard input closes.

    A kernel that is restarted is killed and can end nothing itself. The ranks get an empty standard input.
    """
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def do_without_libuv() -> None:
    """Let torchrun's own stores heed ``USE_LIBUV=0``, as those of the ranks do.

    PyTorch for Windows comes without libuv, and torchrun asks for it all the same.
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
