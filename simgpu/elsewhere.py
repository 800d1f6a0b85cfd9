"""The name under which notebooks import `simgpu.worker`."""

from .worker import unavailable_reason as problem  # noqa: F401
