# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 204-215, 244-254, 298-309: what version 1 gives, reports and saves.
import os

import torch

from manta.util.sgd import TorchTrainer, TrainingOperator


class MyTrainingOperator(TrainingOperator):
    def setup(self, config):
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        x = torch.linspace(-1, 1, 8).reshape(-1, 1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x),
                                             batch_size=2)
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.3),
            criterion=torch.nn.MSELoss())
        self.register_data(train_loader=loader, validation_loader=loader)


trainer = TorchTrainer(training_operator_cls=MyTrainingOperator, num_workers=2)

trainer.train()

trained_model = trainer.get_model()

for _ in range(3):
    print(trainer.train(reduce_results=False))

for _ in range(3):
    trainer.train()
    trainer.save_checkpoint(checkpoint_dir=os.environ["MANTA_RESULTS"] + "/ray_results")
