"""``torch.Generator(device="sim")``, and the errors for a generator of the wrong device.

Python code cannot make a generator for a Python device. `SimGenerator` is a CPU generator that reports
the simulated device. Passed through C++ it loses its class, so it is identified by its address.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.jit._builtins import _register_builtin
from torch.utils._device import _device_constructors

from .machine import MACHINE, Device

_TorchGenerator = torch.Generator
_by_address: weakref.WeakValueDictionary[int, SimGenerator] = weakref.WeakValueDictionary()


class SimGenerator(torch.Generator):
    """A random number generator for one simulated device."""

    _device: torch.device

    @property
    def device(self) -> torch.device:
        """The simulated device."""
        return self._device

    def clone_state(self) -> SimGenerator:
        """Return a new generator with the same state."""
        clone = _new_generator(self._device)
        clone.set_state(self.get_state())
        return clone

    def __reduce__(self) -> Any:
        return _rebuild, (str(self._device), self.get_state())


def _rebuild(device: str, state: torch.Tensor) -> SimGenerator:
    """Return a generator for ``device`` with ``state``; called by unpickling."""
    generator = _new_generator(device)
    generator.set_state(state)
    return generator


def _new_generator(device: torch.device | str | int) -> SimGenerator:
    """Return a new generator for a simulated device, registered in ``_by_address``."""
    generator = SimGenerator()
    generator._device = MACHINE.device(device).torch_device
    _by_address[generator._cdata] = generator
    return generator


class _GeneratorType(type(_TorchGenerator)):
    """The metaclass that replaces that of ``torch.Generator``.

    A call returns a `SimGenerator` for ``"sim"``, else PyTorch's own generator.
    """

    def __call__(cls, device: Any = None) -> torch.Generator:
        if device is None:
            return _TorchGenerator()
        is_sim = torch.device(device).type == "sim"
        return _new_generator(device) if is_sim else _TorchGenerator(device)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _TorchGenerator)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _TorchGenerator)


def register() -> None:
    """Replace ``torch.Generator`` by a class that makes generators of both kinds.

    Also patch PyTorch's random functions to reject a simulated device's generator for CPU tensors.
    """
    name = {"__module__": "torch", "__qualname__": "Generator"}  # where pickle looks for it
    torch.Generator = _GeneratorType("Generator", (_TorchGenerator,), name)
    constructors = _device_constructors()
    for name in (
        *("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"),
        *("poisson", "binomial", "rand_like", "randn_like", "randint_like"),
    ):
        checked = _check_argument(plain := getattr(torch, name))
        _register_builtin(checked, f"aten::{name}")  # for TorchScript
        if plain in constructors:
            constructors.add(checked)
        setattr(torch, name, checked)
    torch.utils.data.dataset.randperm = torch.randperm  # imported there by name
    for name in (
        *("random_", "uniform_", "normal_", "bernoulli_", "exponential_", "geometric_"),
        *("cauchy_", "log_normal_", "bernoulli", "multinomial"),
    ):
        setattr(torch.Tensor, name, _check_argument(getattr(torch.Tensor, name)))


def _check_argument(draw: Any) -> Any:
    """Return a random function that raises RuntimeError for a CPU tensor with a simulated device's generator.

    PyTorch itself would accept it, because it is a CPU generator.
    """

    @functools.wraps(draw)
    def checked(*args: Any, **kwargs: Any) -> Any:
        values = (kwargs.get("generator"), *args)  # some functions take it by position
        if not any(x.__class__ is SimGenerator for x in values):
            return draw(*args, **kwargs)
        tensor = args[0] if args else None
        result = tensor if isinstance(tensor, torch.Tensor) else draw(*args, **kwargs)
        if result.device.type == "cpu":
            raise RuntimeError("Expected a 'cpu' device type for generator but found 'sim'")
        return draw(*args, **kwargs) if result is tensor else result

    return checked


def check(generator: torch.Generator, device: Device) -> None:
    """Check that a generator belongs to a simulated device, with CUDA's error messages.

    Raises
    ------
    RuntimeError
        If it belongs to the CPU or to another simulated device.
    """
    sim_generator = _by_address.get(generator._cdata)
    if sim_generator is None:
        raise RuntimeError(f"Expected a 'sim' device type for generator but found '{generator.device.type}'")
    if sim_generator._device != device.torch_device:
        raise RuntimeError(
            f"Expected a '{device.torch_device}' generator device but found '{sim_generator._device}'"
        )
