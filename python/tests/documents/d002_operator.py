# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 83-97: an operator class, a pass at a time. use_gpu is True where there are
# GPUs.
import torch

from manta.util.sgd import TrainingOperator, TorchTrainer

GPUS = torch.cuda.device_count() >= 4


class MyTrainingOperator(TrainingOperator):
    def setup(self, config):
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        x = torch.linspace(-1, 1, 32).reshape(-1, 1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x),
                                             batch_size=2)
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.3),
            criterion=torch.nn.MSELoss())
        self.register_data(train_loader=loader, validation_loader=loader)


trainer = TorchTrainer(training_operator_cls=MyTrainingOperator, num_workers=4, use_gpu=GPUS)

losses = []
num_epochs=10
for _ in range(num_epochs):
    trainer.train()
    losses.append(trainer.validate()["val_loss"])

final_model = trainer.get_model()
trainer.shutdown()
