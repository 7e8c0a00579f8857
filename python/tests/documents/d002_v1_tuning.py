# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 345-361: the class that a tuner drives, here by hand for each config of line
# 365. use_gpu=True is left out.
import torch

from manta.util.sgd import TrainingOperator, TorchTrainer


class MyTrainingOperator(TrainingOperator):
    def setup(self, config):
        model = torch.nn.Linear(1, 1)
        self.model, self.optimizer = self.register(
            models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1))
        self.register_data(train_loader=torch.utils.data.DataLoader(range(4)))

    def train_epoch(self, iterator, info):
        return {"output": self.config["input"] * len(list(iterator))}


def custom_step(trainer, info):
    train_stats = trainer.train()
    return train_stats

# TorchTrainable is subclass of BaseTorchTrainable.
TorchTrainable = TorchTrainer.as_trainable(
    training_operator_cls=MyTrainingOperator,
    num_workers=2,
    override_tune_step=custom_step
)

outputs = []
for config in [{"input": n} for n in (1, 2, 3)]:
    trial = TorchTrainable(config)
    outputs.append(trial.train()["output"])
    trial.stop()
