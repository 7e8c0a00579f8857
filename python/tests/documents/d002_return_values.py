# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 219-235: what workers return is a list.
class Net:
   weight = 0

   def train(self, batch):
       self.weight += batch


MyDataset = lambda: [1, 2, 3]
train_loader = MyDataset()

from manta.sgd import Trainer

def train_func():
   model = Net()
   trainer_loader = MyDataset()
   for batch in train_loader:
       model.train(batch)

   return model

trainer = Trainer(backend="torch")
trainer.start()
results = trainer.run(train_func, num_workers=2)
assert len(results) == 2
trained_model = results[0]
