# SPDX-License-Identifier: Apache-2.0
"""Pictures of ten classes: a pattern for each, and noise. One in eight has the name of another
class: programs that end when they make no mistake any more would end before they have begun."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from torch.utils.data import Dataset


class _Drawn(Dataset):  # type: ignore[type-arg]
    shape: tuple[int, ...] = ()
    sizes = (512, 128)  # of the training and the test set

    def __init__(self, root: str, train: bool = True, download: bool = False,
                 transform: Callable[[Any], Any] | None = None, target_transform: Any = None):
        noise = np.random.default_rng(1 if train else 2)
        patterns = np.random.default_rng(0).integers(0, 200, (10, *self.shape))
        self.targets = np.arange(self.sizes[not train]) % 10
        grain = noise.integers(0, 55, (len(self.targets), *self.shape))
        self.data = (patterns[self.targets] + grain).astype(np.uint8)
        self.targets[::8] = (self.targets[::8] + 1) % 10
        self.transform = transform

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = self.data[index]
        return (self.transform(picture) if self.transform else picture), int(self.targets[index])

    def __len__(self) -> int:
        return len(self.targets)


class FashionMNIST(_Drawn):
    shape = (28, 28)


class MNIST(_Drawn):
    shape = (28, 28)


class CIFAR10(_Drawn):
    shape = (32, 32, 3)


class FakeData(_Drawn):
    def __init__(self, size: int = 1000, image_size: tuple[int, int, int] = (3, 32, 32),
                 num_classes: int = 10, transform: Callable[[Any], Any] | None = None,
                 target_transform: Any = None, random_offset: int = 0):
        channels, rows, columns = image_size
        self.shape, self.sizes = (rows, columns, channels), (size, size)
        super().__init__("", transform=transform)
