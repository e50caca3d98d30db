"""Running a pack's module.

A pack may take long to import, or never end. It gets a moment of our time, in a thread; if that is not enough it goes
on in the background, and whoever calls one of its tools waits for it.
"""

import sys
from pathlib import Path
from threading import Lock, Thread
from types import ModuleType
from zlib import crc32

from onetool.core.errors import Mistake, ToolFailure
from onetool.core.failure import words_for
from onetool.sources.packs.candidates import Candidate

PREFIX = "onetool_pack_"


class Import:
    """One import under way."""

    def __init__(self, candidate: Candidate, fresh: bool = False) -> None:
        self.candidate = candidate
        self._fresh = fresh
        self._module: ModuleType | None = None
        self._error: BaseException | None = None
        self._thread: Thread | None = None
        self._lock = Lock()

    def wait(self, seconds: float | None = None) -> bool:
        """Begin, if it has not begun, and wait; whether it is done."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"import {self.candidate.name}", daemon=True)
                self._thread.start()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def module(self, seconds: float | None = None) -> ModuleType:
        """The module, when it is done; raises what the import raised, or TimeoutError."""
        if not self.wait(seconds):
            raise TimeoutError(f"still importing after {seconds:g} s; it may be waiting for something")
        if self._module is None:
            raise self._error or ImportError(f"{self.candidate.origin} gave no module")
        return self._module

    def module_for_a_call(self) -> ModuleType:
        """The module for somebody who calls a tool: a failed import is that tool's failure."""
        try:
            return self.module()
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything
            mistake = import_mistake(self.candidate, error)
            raise ToolFailure(f"the pack can't be imported: {mistake}", reason="source_unavailable") from None

    def _run(self) -> None:
        try:
            self._module = _imported(self.candidate, self._fresh)
        except KeyboardInterrupt as error:  # raised by the pack: a person's goes to the main thread
            self._error = ImportError("KeyboardInterrupt").with_traceback(error.__traceback__)
        except BaseException as error:  # noqa: BLE001 - a pack may raise anything, SystemExit included
            self._error = error


def _imported(candidate: Candidate, fresh: bool) -> ModuleType:
    if candidate.file is not None:
        module = _run_file(candidate.file, fresh)
    else:
        from importlib import import_module

        module = import_module(candidate.module or candidate.name)
    if not hasattr(module, "pack"):
        module.pack = candidate.name  # pyright: ignore[reportAttributeAccessIssue]
    return module


def _run_file(file: Path, fresh: bool) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    # Two files may have one name; each is a module of its own.
    name = f"{PREFIX}{file.parent.name if file.name == '__init__.py' else file.stem}_{crc32(bytes(file)):08x}"
    for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[loaded]
    inside = [str(file.parent)] if file.name == "__init__.py" else None
    spec = spec_from_file_location(name, file, submodule_search_locations=inside)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is not a Python file")
    if fresh:
        from onetool.sources.packs.from_source import take_source

        take_source(spec)
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, type hints and relative imports look their module up there
    spec.loader.exec_module(module)
    return module


def imported() -> dict[str, ModuleType]:
    """The modules of packs that come from files, and what is inside of them."""
    return {name: module for name, module in list(sys.modules.items()) if name.startswith(PREFIX)}


def put_back(modules: dict[str, ModuleType]) -> None:
    """Those that there were before: packs whose successors are not taken look their own parts up there.

    Others are left: another app in this process may have imported them.
    """
    sys.modules.update(modules)


def import_mistake(candidate: Candidate, error: BaseException) -> Mistake:
    """What went wrong, and in which line of the pack's own file."""
    file = candidate.file
    line = error.lineno if isinstance(error, SyntaxError) else (_line_in(file, error) if file else None)
    where = str(file) if file else candidate.origin
    message = f"SystemExit: {error}" if isinstance(error, SystemExit) else words_for(error)
    return Mistake(message=message, file=where, line=line, key="packs")


def _line_in(file: Path, error: BaseException) -> int | None:
    """The last line of that file on the way to the error."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
