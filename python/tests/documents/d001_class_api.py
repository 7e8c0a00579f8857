# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 338-353: an instance per worker. backend="horovod|pytorch" is a choice.
import manta
from manta.sgd import Trainer

manta.init(num_cpus=12, num_gpus=48)


class ExecutionClass:
    def __init__(self, start, step):
        self.value, self.step = start, step

    def train(self):
        self.value += self.step
        return self.value


args, kwargs = (100,), {"step": 5}

trainer = Trainer(gpus_per_worker=4, num_workers=12, backend="pytorch")

trainer.start(ExecutionClass, args, kwargs)
everywhere = trainer.execute(lambda w: w.train())
once = trainer.execute_single(lambda w: w.train())
trainer.shutdown()
