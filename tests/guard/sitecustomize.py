"""What the notebook tests put on the import path of every kernel: no network, no old API.

Python imports this file by itself at start-up, in a kernel as in whatever a kernel starts.
"""

import contextlib
import ipaddress
import os
import socket
import sys
import warnings

sys.modules.setdefault("rfc3987_syntax", None)  # as in tools: a second, for nothing


class NetworkBlocked(ConnectionRefusedError):
    """Raised when a lesson opens a network connection; lessons must run offline."""


_OWN_NAMES = {"", "localhost", socket.gethostname()}


def _check(host):
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if host is None or host in _OWN_NAMES:
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if log := os.environ.get("COURSE_NETWORK_LOG"):
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{host}\n")
    raise NetworkBlocked(f"the tests block the network, and this code asked for {host!r}")


def _guard_address(name):
    real = getattr(socket.socket, name)

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        return real(self, address)

    setattr(socket.socket, name, guarded)


def _guard_host(name):
    real = getattr(socket, name)

    def guarded(host, *args, **kwargs):
        _check(host)
        return real(host, *args, **kwargs)

    setattr(socket, name, guarded)


for _name in ("connect", "connect_ex"):
    _guard_address(_name)
for _name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
    _guard_host(_name)

for _kind in (DeprecationWarning, FutureWarning):
    for _module in (r"__main__$", r"course_utils(\.|$)", r"course_lessons(\.|$)", r"simgpu(\.|$)"):
        warnings.filterwarnings("error", category=_kind, module=_module)
