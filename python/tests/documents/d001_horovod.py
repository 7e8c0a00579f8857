# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 338-354: the class API and the backend argument, with Horovod.
import manta

manta.init(num_cpus=16, num_gpus=16)  # as the document's cluster has them, in part

import horovod.torch as hvd
import torch

from manta.sgd import Trainer


class ExecutionClass:
    def __init__(self, start):
        hvd.init()
        self.total = torch.tensor([float(start)])

    def train(self):
        self.total = hvd.allreduce(self.total + hvd.rank(), op=hvd.Sum)
        return self.total.item()


args, kwargs = (1,), {}

trainer = Trainer(gpus_per_worker=4, num_workers=4, backend="horovod")

trainer.start(ExecutionClass, args, kwargs)
everywhere = trainer.execute(lambda w: w.train())
once = trainer.execute_single(lambda w: w.total.item())
trainer.shutdown()


def train_func():
    hvd.init()
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


trainer = Trainer(gpus_per_worker=4, num_workers=4, backend="horovod")
result = trainer.run(train_func)
