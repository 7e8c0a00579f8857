# SPDX-License-Identifier: Apache-2.0
# Document 004, lines 437-445: the same numbers in every run.
import torch

from manta import train
import manta.train.torch
from manta.air import ScalingConfig, session
from manta.train.torch import TorchTrainer

NeuralNetwork = lambda: torch.nn.Linear(4, 1)

def train_func(config):
    if config["reproducible"]:
        train.torch.enable_reproducibility()

    model = NeuralNetwork()
    model = train.torch.prepare_model(model)

    loss = model(torch.randn(2, 4)).sum()
    session.report({"loss": loss.item(), "weight": model.module.weight.tolist()})

def run(reproducible):
    return TorchTrainer(train_func, train_loop_config={"reproducible": reproducible},
                        scaling_config=ScalingConfig(num_workers=2)).fit().metrics

same = [run(True) for _ in range(2)]
other = [run(False) for _ in range(2)]
