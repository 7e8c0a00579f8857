# SPDX-License-Identifier: Apache-2.0
"""Ray Client, for programs that ask whether they use it: they don't."""

__all__ = ["ray"]


def __dir__() -> list[str]:
    return __all__


class ray:  # as programs name it: ray.util.client.ray.is_connected()
    @staticmethod
    def is_connected() -> bool:
        """Whether this process is the client of a driver elsewhere."""
        return False
