# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 343-366: a TrainingOperator tuned, by a class of trials.
import torch

from manta import tune
from manta.util.sgd import TrainingOperator, TorchTrainer

class MyTrainingOperator(TrainingOperator):
    def setup(self, config):
        model = torch.nn.Linear(1, 1)
        data = [(torch.ones(2, 1) * config["input"], torch.ones(2, 1)) for _ in range(4)]
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.01),
            criterion=torch.nn.MSELoss())
        self.register_data(train_loader=torch.utils.data.DataLoader(data, batch_size=None))

def custom_step(trainer, info):
    train_stats = trainer.train()
    return {**train_stats, "done": True}

# TorchTrainable is subclass of BaseTorchTrainable.
TorchTrainable = TorchTrainer.as_trainable(
    training_operator_cls=MyTrainingOperator,
    num_workers=2,
    use_gpu=False,
    override_tune_step=custom_step
)

analysis = tune.run(
    TorchTrainable,
    config={"input": tune.grid_search([1, 2, 3])}
)
