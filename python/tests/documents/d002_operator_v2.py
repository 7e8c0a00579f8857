# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 102-147: the operator in a train function. use_gpu is True where there
# are GPUs; the argument epoch_idx comes after the iterator.
import torch

from manta.util.sgd import TrainingOperator
from manta.sgd import Trainer
from manta import sgd

GPUS = torch.cuda.device_count() >= 4


class MyTrainingOperator(TrainingOperator):
    def setup(self, config):
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        x = torch.linspace(-1, 1, 32).reshape(-1, 1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x),
                                             batch_size=2, shuffle=True)
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.3),
            criterion=torch.nn.MSELoss())
        self.register_data(train_loader=loader, validation_loader=loader)


def train_func(config):
    device = torch.device(f"cuda:{sgd.local_rank()}" if
                          torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(device)

    # Set the args to whatever values you want.
    training_operator = MyTrainingOperator(
        config=config,
        world_rank=sgd.world_rank(),
        local_rank=sgd.local_rank(),
        is_distributed=True,
        device=device,
        use_gpu=GPUS,
        wrap_ddp=True,
        add_dist_sampler=True)

    training_operator.setup(config)

    for idx in range(config["num_epochs"]):
        train_loader = training_operator._get_train_loader()
        # If using DistributedSampler, set the epoch here.
        train_loader.set_epoch(idx)
        training_operator.train_epoch(iter(train_loader), epoch_idx=idx)

        validation_loader = training_operator._get_validation_loader()
        training_operator.validate(iterator=iter(validation_loader))

    if sgd.world_rank() == 0:
        return training_operator._get_original_models()
    else:
        return None


trainer = Trainer(backend="torch", num_workers=4, use_gpu=GPUS)
trainer.start()
results = trainer.run(train_func, config={"num_epochs": 10})
final_model = results[0]
trainer.shutdown()
