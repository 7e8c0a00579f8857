# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 314-329: a checkpoint after every epoch.
import torch


class Net(torch.nn.Linear):
   def __init__(self):
       super().__init__(1, 1)

   def train(self, batch):
       with torch.no_grad():
           self.weight.fill_(batch)


MyDataset = lambda: [1.0, 2.0]
train_loader = MyDataset()

from manta.sgd import Trainer
from manta import sgd

def train_func():
   model = Net()
   trainer_loader = MyDataset()
   for i in range(3):
       for batch in train_loader:
           model.train(batch)
       sgd.save_checkpoint(epoch=i, model=model.state_dict())

trainer = Trainer(backend="torch")
trainer.start()
trainer.run(train_func, num_workers=2)
