"""Functions and classes that an answer could replace, in the modules where others would feel it."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from .restore import is_librarys
from .torch_state import Undo


class _AsLoaded:
    """Gives a module that was loaded before the check, and thrown out in it: PyTorch breaks when read twice."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self._modules = modules
        self._specs: dict[str, object] = {}

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find what was loaded before."""
        return ModuleSpec(name, self) if name in self._modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module as it is."""
        module = self._modules[spec.name]
        self._specs[spec.name] = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave it so."""
        module.__spec__ = self._specs.get(module.__name__)


def keep(further: tuple[Any, ...], replaced: list[str]) -> Undo:
    """Functions and classes that an answer could replace, where that would be felt; those it did are named in ``replaced``."""
    import simgpu

    before = [(one, vars(one).copy()) for one in (*_owners(len(sys.modules)), *further)]
    tables = [(t, t.copy()) for _, names in before for t in names.values() if type(t) is dict]
    modules, simulated = dict(sys.modules), simgpu.enabled()
    finder = _AsLoaded(modules)
    sys.meta_path.insert(0, finder)

    def back() -> None:
        sys.modules.update(modules)
        sys.meta_path[:] = [other for other in sys.meta_path if other is not finder]
        ours = not simulated and simgpu.enabled()  # it registers by replacing names of PyTorch
        for owner, names in before:
            if not _same(vars(owner), names) and not (
                ours and "torch" in str(getattr(owner, "__module__", owner))
            ):
                replaced.extend(_put_back(owner, names))
        for table, old in tables:  # of functions, such as copy's; what a library has added may stay
            if not ours and not _same(table, old):
                table.update((key, f) for key, f in old.items() if isinstance(f, _CODE))

    return back


def _same(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now.values(), then.values()))


def _put_back(owner: Any, names: dict[str, Any]) -> list[str]:
    """All but plain values; of ``sys`` and of objects, everything. Return what was the learner's work."""
    now, every = vars(owner), owner is sys or not isinstance(owner, (ModuleType, type))
    said, theirs = getattr(owner, "__qualname__", getattr(owner, "__name__", "Exercise")), []
    for name, value in names.items():
        ours, new = every or not issubclass(type(value), _PLAIN), now.get(name)
        if ours and (new is not value or name not in now):
            by_library = type(new) is FunctionType and is_librarys(new.__code__)
            if callable(value) and not by_library and name != "Storage":  # set_default_dtype's
                theirs.append(f"{said}.{name}")
            with suppress(AttributeError, TypeError):
                setattr(owner, name, value)
    for name in now.keys() - names.keys() if isinstance(owner, type) else ():
        if hasattr(type(now[name]), "__get__") or hasattr(super(owner, owner), name):
            delattr(owner, name)
    return theirs


@functools.lru_cache(1)
def _owners(loaded: int) -> tuple[Any, ...]:
    """The modules that checks run through; of most of them the classes too, and the exercises."""
    core = importlib.import_module("course_utils.exercises.exercise")
    listed, within, found = _LISTED.split(), tuple(_WITHIN.split()), list[Any]()
    for name, module in [*sys.modules.items()]:
        all_of_it = name in listed or name.startswith(within)
        if all_of_it or (name.startswith(("numpy", "torch")) and name.count(".") < 2):
            inner = vars(module).values() if all_of_it else ()
            found += [module, *(one for one in inner if isinstance(one, (type, core.Exercise)))]
    return tuple({id(one): one for one in found}.values())


_CODE = (FunctionType, BuiltinFunctionType, type)
_PLAIN = (type(None), int, float, complex, str, bytes, tuple, list, dict, set, frozenset)
_WITHIN = "course_ simgpu torch.nn.modules torch.nn.utils torch.optim torch.autograd torch.amp"
_LISTED = """abc ast builtins collections contextlib copy dataclasses enum functools gc html importlib importlib._bootstrap
inspect io itertools json json.decoder linecache math multiprocessing numbers operator os pathlib pathlib._abc pathlib._local
pickle posixpath queue random re re._compiler shutil signal statistics string subprocess sys tempfile textwrap threading time
tokenize traceback types typing warnings weakref torch._C._nn torch._ops torch._subclasses.fake_tensor torch.nn torch.storage
torch._weights_only_unpickler torch.nn.functional torch.nn.init torch.utils.checkpoint torch.utils.data"""
