# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 259-283: rows of all workers, in a callback.
from manta import sgd
from manta.sgd import Trainer
from manta.sgd.callbacks import SGDCallback
from typing import List, Dict

class PrintingCallback(SGDCallback):
    def handle_result(self, results: List[Dict], **info):
        print(results)

def train_func():
    for i in range(3):
        sgd.report(epoch=i)

trainer = Trainer(backend="torch", num_workers=2)
trainer.start()
result = trainer.run(
    train_func,
    callbacks=[PrintingCallback()]
)
trainer.shutdown()
