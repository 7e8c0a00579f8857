# SPDX-License-Identifier: Apache-2.0
"""bench/py/plain.py SINCE import|step - what a plain process needs for either."""

import sys
import time

start = time.monotonic_ns()
import torch  # noqa: E402, F401

print("import_ms", (time.monotonic_ns() - start) / 1e6)
if sys.argv[2] == "step":
    import models
    print("step_ms", (models.first_step() - int(sys.argv[1])) / 1e6)
