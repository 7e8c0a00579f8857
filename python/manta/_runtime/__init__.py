# SPDX-License-Identifier: Apache-2.0
"""Processes: the driver, what workers are forked from, the workers, and what travels between them.
It knows neither the names that users import (manta.sgd, …) nor any framework by name.

`driver` and `zygote` start processes, `worker` is called in one by the extension, `job` is what it
is sent. `pickling`, `travel` and `main` bring functions and values there and back, `results` return
values, `raised`, `frames` and `errors` exceptions; `blame` says what cannot travel. `display`,
`logs` and `terminal` are about what is printed and typed.
"""
