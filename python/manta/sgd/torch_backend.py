# SPDX-License-Identifier: Apache-2.0
"""PyTorch: the process group that a train function finds."""

from __future__ import annotations

from manta.sgd.backend import BackendConfig


class TorchConfig(BackendConfig):
    framework = "torch"
