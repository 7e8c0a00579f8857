# SPDX-License-Identifier: Apache-2.0
"""Between pictures and tensors."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import torch


class ToTensor:
    """Bytes in rows and columns to floats between 0 and 1, channels first."""

    def __call__(self, picture: Any) -> torch.Tensor:
        array = np.asarray(picture)
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        return torch.from_numpy(np.ascontiguousarray(array)).float() / 255


class Normalize:
    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        self.mean, self.std = (torch.tensor(v).reshape(-1, 1, 1) for v in (mean, std))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std


class Compose:
    def __init__(self, steps: Sequence[Callable[[Any], Any]]):
        self.steps = steps

    def __call__(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x
