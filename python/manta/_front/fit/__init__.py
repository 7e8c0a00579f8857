# SPDX-License-Identifier: Apache-2.0
"""Generation 3: `TorchTrainer(train, scaling_config=…, run_config=…).fit()`, with the objects that
it takes and gives and what its train function calls. What the fronts `air` and `train` share; all
of it goes by manta._front.trainer.Trainer, and there is no second engine."""
