# SPDX-License-Identifier: Apache-2.0
"""What a framework is to manta. Everything has a default: that of no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from manta._names import public

if TYPE_CHECKING:
    from manta._frameworks.tensors import Tensors
    from manta._front.worker_group import WorkerGroup

# In the words of libraries that connect ranks: one of them is gone, perhaps.
_PEER_WORDS = ("Connection", "NCCL", "Socket", "gloo")


@public
class Backend:
    """Hooks around the work of a trainer; a subclass has those it needs."""

    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """In the driver, when the workers are there."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """In the driver, before they end."""

    def enter(self, backend_config: BackendConfig) -> None:
        """In a worker, before every call of a train function."""

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        """In a worker, after it: the process may be used again."""

    def resume(self, backend_config: BackendConfig) -> None:
        """In a worker, before every call between runs (execute, an instance's methods). What it
        sets up stays for the next one, and ends with the process or the next run. All ranks call
        it, also if the call is for one of them."""

    def rest(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        """In a worker, after it."""


@public
class BackendConfig:
    """What the user says about a framework; it travels to the workers with every job."""
    framework = "none"  # imported by what workers are forked from: a name of manta._frameworks

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend


class Framework(Backend):
    """What processes do for a framework, besides the hooks. It has no state of its own: there may
    be several objects of it. Only `load` imports the framework itself; methods that are said to be
    called where it is imported may do so as well."""

    name = "none"
    synonyms: tuple[str, ...] = ()  # further names for the argument `backend`
    uses_onednn = False  # whose libraries must be told, before they are loaded, of a broken CPU
    warms = False  # whether there is something for `warm` to do
    saves_itself = False  # whether it can do checkpoint="auto"
    joins_again = True  # whether a process may be in one group of ranks after another
    functions: Mapping[str, str] = {}  # that a train function calls, each with its module below

    # --- in the driver, where it is not imported ---

    def config(self) -> BackendConfig:
        """What backend="NAME" stands for."""
        return BackendConfig()

    def how_to_install(self) -> str:
        """The command, as a message has it."""
        return f"pip install {self.name}"

    def environment(self) -> dict[str, str]:
        """Variables that it reads when it is imported, with the values that workers get: what
        workers are forked from is not shared between programs that differ in one of them. Those
        that are set in the environment count more."""
        return {}

    def hint(self, name: str) -> str | None:
        """What somebody means who takes `name` for that of a framework."""
        return None

    def hint_for_file(self, path: str) -> str | None:
        """What to write for a file of its own in the place of a checkpoint."""
        return None

    # --- where workers are forked ---

    def load(self) -> None:
        """Imports what every train function needs. No second thread may be there afterwards, no
        parallel region have run, no GPU have been looked for."""

    def warm(self) -> None:
        """Imports what the first steps would; in a successor, beside the first workers."""

    def is_warm(self) -> bool:
        """Whether that is there."""
        return True

    # --- in a worker, where it is imported ---

    def reseed(self) -> None:
        """In a new process, whose generators are copies."""

    def seed_all(self, number: int) -> None:
        """All of its generators, by a number of 64 bits."""

    def random_states(self) -> dict[str, bytes]:
        """Its generators, by names of its own."""
        return {}

    def set_random_states(self, found: dict[str, bytes]) -> None:
        """Those that are among them."""

    def set_threads(self, n: int) -> None:
        """How many to compute with."""

    def save_passes(self) -> None:
        """checkpoint="auto", for this call of the train function."""
        raise NotImplementedError

    def let_go(self) -> None:
        """After a train function: what it prepared is forgotten, so that the memory goes and the
        next one finds nothing set."""

    def peer_kinds(self) -> tuple[type[Exception], ...]:
        """Of the errors that its collectives raise."""
        return (RuntimeError,)

    def is_peer_error(self, error: Exception) -> bool:
        """Whether one of those kinds may follow from a lost peer: collectives fail in words of
        their own, and may know of it before manta does."""
        text = str(error)
        return any(word in text for word in _PEER_WORDS)

    def without_group(self, o: Any) -> Any:
        """What goes to the driver in the place of `o`: there is no process group there."""
        return o

    def tensors(self) -> Tensors | None:
        """Its tensors in checkpoints; None: it has none."""
        return None
