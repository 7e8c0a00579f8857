# SPDX-License-Identifier: Apache-2.0
"""The tensors of a framework in checkpoints: what manta._state asks of it.

Saving: a Packer sees every object on its way into the pickle, answers for those that are tensors,
and says at the end which memory they are entries of. What lies on a device is then copied to host
memory, or by `filler` straight to its place. Loading: a Reader gives the functions that make
tensors of entries. Everything has a default: that of a framework whose tensors go their own way
through the pickle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable

if TYPE_CHECKING:
    from manta._state.entry import Entry, Packing, Source

Fill = Callable[..., None]  # (addresses of the entries, address, size, serial and serials of slots)
Dump = Callable[[Any, Any], None]  # (object, file)


class Packer:
    """For one object that is being packed."""

    kinds: tuple[type, ...] = ()  # of its tensors

    def inside(self, o: Any) -> Iterable[tuple[Any, Any]] | None:
        """The tensors of an object that is no container, by name; None: it is no such object."""
        return None

    def reduce(self, o: Any) -> Any:
        """Of one of its kinds, as a reducer_override: a function of manta._pickled that stands for
        it. NotImplemented: it goes its own way. NotWhole, if of a state that is saved by one rank
        this rank has only a piece."""
        return NotImplemented

    def place_all(self) -> None:
        """When all objects were seen: adds the entries."""


class Reader:
    """For one checkpoint that is being read, part by part if it has several."""

    def words(self, rank: int, source: Source) -> dict[str, Callable[..., Any]]:
        """What to call for the functions of manta._pickled in the part of a rank."""
        return {}

    def is_plain(self, module: str, name: str) -> bool:
        """Whether a pickle that nobody has vouched for may name it: a type of elements, say."""
        return False

    def check(self) -> None:
        """All parts were read."""


class Tensors:
    """What a framework knows of its tensors; asked where it is imported, but for `reader`."""

    def packer(self, found: Packing) -> Packer:
        return Packer()

    def reader(self, device: Any, whole: bool) -> Reader:
        """device: where those of a device come back to; None: host memory. whole: of what ranks
        have pieces of, each gets all; else its own piece."""
        return Reader()

    def lazy_reader(self) -> Reader:
        """The same for all ranks' parts, in host memory: what ranks have pieces of is made of them
        later, by who knows which piece of it he needs."""
        return self.reader(None, True)

    def unwrapper(self) -> Callable[[Any], Any]:
        """What gives the model inside of a wrapper, and anything else as it is."""
        return lambda o: o

    def staged(self, entries: list[Entry]) -> list[Entry]:
        """The same, all of them in host memory."""
        return entries

    def filler(self, entries: list[Entry]) -> Fill | None:
        """What copies those of a device to their places in a slot; None: there are none."""
        return None

    def save_again(self, obj: Any) -> bool:
        """Saves an object that became the same entries the last time; False: it did not."""
        return False

    def remember(self, entries: list[Entry], stream: bytes) -> None:
        """What the last object became."""

    def array(self, kind: str, shape: tuple[int, ...], view: Any) -> Any:
        """A tensor over an entry that a program in C has written; None: not of this framework."""
        return None

    def dumper(self) -> tuple[Dump, str] | None:
        """How an object is written to a file of its own, and how the file's name ends."""
        return None
