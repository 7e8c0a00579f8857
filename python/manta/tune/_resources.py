# SPDX-License-Identifier: Apache-2.0
"""What a trial gets of a host."""

from __future__ import annotations

from typing import Any

from manta._names import public

RESOURCES = "resources.json"  # in a trial's directory: what it has been given meanwhile


@public
class PlacementGroupFactory(dict[str, float]):
    """A list of bundles, [{"CPU": 1}, {"CPU": 2, "GPU": 1}]: what a trial itself gets, and what the
    workers get that it starts. A trial holds the sum, as a dict of which this can be used too."""

    def __init__(self, bundles: list[dict[str, float]], strategy: str = "PACK", **others: Any):
        self.bundles, self.strategy = [checked(b) for b in bundles], strategy
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0) + amount
        super().__init__(total)

    def __reduce__(self) -> Any:
        return PlacementGroupFactory, (self.bundles, self.strategy)

    @property
    def head_cpus(self) -> float:
        """CPUs of the trial itself."""
        return self.bundles[0].get("CPU", 0) if self.bundles else 0

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        return dict(self)


def checked(resources: Any) -> dict[str, float]:
    """resources_per_trial as a worker has them."""
    if not isinstance(resources, dict):
        raise TypeError(f'resources_per_trial must be a dict such as {{"cpu": 2, "gpu": 0.5}}, not '
                        f'{resources!r}')
    out: dict[str, float] = {}
    for name, amount in resources.items():
        if isinstance(amount, dict):  # custom_resources
            out.update(amount)
        elif isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
            raise ValueError(f"resources_per_trial: {name} must be a number from 0, not {amount!r}")
        elif amount or name.lower() != "gpu":
            out[name.upper() if name.lower() in ("cpu", "gpu") else name] = amount
    return out
