# SPDX-License-Identifier: Apache-2.0
"""Functions of `ray` itself that differ from manta's of the same name, or that only ray has."""

from __future__ import annotations

from typing import Any

from manta._manta import in_session, version
from manta._runtime import driver, inventory, worker

# Of a release that has both ray.air.session and train.report: programs choose by it.
__version__ = "2.9.3"
__commit__ = f"manta {version()}"

# Arguments of init() that are about Ray's own processes: a program does the same without them.
_QUIET = frozenset((
    "configure_logging", "dashboard_host", "dashboard_port", "include_dashboard", "include_webui",
    "log_to_driver", "logging_config", "logging_format", "logging_level", "namespace",
    "object_store_memory", "redis_password", "webui_host"))


class Context(dict[str, Any]):
    """What init() gives: a dict, as in Ray 1, with the attributes of Ray 2."""

    dashboard_url = None
    ray_version = __version__
    ray_commit = __commit__

    @property
    def address_info(self) -> Context:
        return self

    def disconnect(self) -> None:
        driver.shutdown()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *error: Any) -> None:
        self.disconnect()


def init(address: str | None = None, **options: Any) -> Context:
    """manta.init() with the arguments of ray.init(). Those about logging, the dashboard and the
    object store, and private ones, change nothing."""
    heard = {k: v for k, v in options.items() if k not in _QUIET and not k.startswith("_")}
    driver.init(address or None, **heard)
    return Context(node_ip_address=inventory.own_ip(), address="local")


def get_gpu_ids() -> list[int | str]:
    """The GPUs that this worker has reserved."""
    given = worker.own_gpus.split(",") if in_session() else []
    return [int(id) if id.isdecimal() else id for id in given if id]


def get_node_ip_address() -> str:
    return inventory.own_ip()
