# SPDX-License-Identifier: Apache-2.0
"""Callbacks of manta.tune.integration, with the libraries that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manta import tune

pytest.importorskip("lightning", reason="lightning is not installed")


def fit(config: dict[str, Any]) -> None:
    import lightning.pytorch as lightning
    import torch

    from manta.tune.integration.pytorch_lightning import TuneReportCheckpointCallback

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self._loss(batch)

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self._loss(batch))

        def _loss(self, batch: Any) -> Any:
            x, = batch
            return ((self.layer(x) - 2 * x) ** 2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=config["lr"])

    lightning.seed_everything(0)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.linspace(-1, 1, 32).unsqueeze(1)), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[TuneReportCheckpointCallback({"loss": "val_loss"}, filename="kept.ckpt")])
    trainer.fit(Line(), data, data)


@pytest.mark.filterwarnings("ignore")
def test_lightning_reports_to_its_trial() -> None:
    found = tune.run(fit, {"lr": tune.grid_search([0.0, 0.3])}, metric="loss", mode="min",
                     verbose=0, max_concurrent_trials=1)
    assert found.best_config == {"lr": 0.3}
    assert [t.iteration for t in found.trials] == [2, 2]  # without the sanity check
    assert found.best_checkpoint is not None
    assert Path(found.best_checkpoint.path, "kept.ckpt").is_file()


def test_a_hook_that_lightning_lacks_is_said() -> None:
    from manta.tune.integration.pytorch_lightning import TuneReportCallback
    with pytest.raises(ValueError, match="validation_end"):
        TuneReportCallback("loss", on="validation_ends")
