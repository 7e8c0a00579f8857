# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 361 and 375: a group of workers by itself.
from manta.sgd import WorkerGroup

worker_group = WorkerGroup()

loss = worker_group.apply(lambda output, labels: output - labels, 7, 5)
worker_group.shutdown()
