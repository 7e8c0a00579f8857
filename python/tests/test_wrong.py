# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments, and names that are not here: what is said, and what to write instead."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import manta
from manta import sgd
from manta.sgd import CheckpointStrategy, SGDCallback, TorchConfig, Trainer, WorkerGroup


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(None, quiet=True, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


def said(call: Callable[[], Any]) -> str:
    """The exception of a mistake of the user's: its type and all it says."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, answer", [
    ({"backend": "gloo"}, r"ValueError: unknown .*\nhint: TorchConfig\(backend='gloo'\)"),
    ({"backend": "tf"}, r"ValueError: unknown .*\nhint: 'tensorflow'"),
    ({"backend": "jax"}, r"ValueError: .* not in this version.*\nhint: 'torch', "),
    ({"backend": sys}, r"TypeError: backend must be .*'torch'"),
    ({"backend": TorchConfig}, r"TypeError: .*\nhint: an object of it: TorchConfig\(\)"),
    ({"num_worker": 2}, r"TypeError: .*'num_worker'\nhint: it is num_workers"),
    ({"Num_Workers": 2}, r"hint: it is num_workers"),
    ({"num_gpus": 1}, r"hint: it is gpus_per_worker"),
    ({"foo": 1}, r"TypeError: Trainer\(\) has no argument 'foo'\nhint: it takes backend, num_"),
    ({"use_gpu": "yes"}, r"TypeError: use_gpu must be True or False"),
    ({"use_gpu": False, "gpus_per_worker": 1}, r"contradict each other\nhint: use_gpu=True"),
    ({"use_gpu": False, "resources_per_worker": {"GPU": 2}}, r"with 2 GPUs contradict"),
    ({"use_gpu": True, "gpus_per_worker": 0}, r"contradict"),
    ({"gpus_per_worker": 1.5}, r"a fraction below 1 or a whole number, not 1.5"),
    ({"resources_per_worker": {"cpu": 1}}, r"hint: it is 'CPU'"),
    ({"resources_per_worker": {"gpus": 1}}, r"hint: it is 'GPU'"),
    ({"resources_per_worker": 2}, r"TypeError: .*a dict such as \{'CPU': 2\}"),
    ({"retry_exceptions": "ValueError"}, r"exception types, not 'ValueError'"),
    ({"step_timeout": "a"}, r"ValueError: step_timeout must be a number of seconds"),
    ({"logdir": 3}, r"TypeError: logdir must be a path"),
    ({"callbacks": SGDCallback()}, r"TypeError: callbacks must be a list"),
    ({"callbacks": [SGDCallback]}, r"hint: callbacks=\[SGDCallback\(\)\]"),
    ({"callbacks": [print]}, r"TypeError: .*no handle_result.*\nhint: .*SGDCallback"),
    ({"address": "ssh://host"}, r"ValueError: .*not in this version.*\nhint: .*hosts="),
    ({"hosts": ["node1"]}, r"TypeError: .*'node1'.*\nhint: hosts=\[Host\("),
    ({"threads_per_worker": 0}, r"threads_per_worker must be an int >= 1"),
])
def test_a_trainer_is_told_what_is_meant(arguments: dict[str, Any], answer: str) -> None:
    import re
    text = said(lambda: Trainer(**{"backend": None, **arguments}))
    assert re.search(answer, text), text


def test_other_arguments_are_told_as_well(one: Trainer) -> None:
    def train() -> None:
        pass
    assert "hint: it is timeout_s" in said(lambda: TorchConfig(timeout=10))  # type: ignore
    assert "number of seconds > 0" in said(lambda: TorchConfig(timeout_s="x"))  # type: ignore
    assert "name of a reported" in said(lambda: CheckpointStrategy(
        checkpoint_score_attribute=3))  # type: ignore
    assert "hint: it is num_to_keep" in said(lambda: CheckpointStrategy(num_keep=1))  # type: ignore
    assert "hint: it is cpus_per_worker" in said(lambda: WorkerGroup(num_cpus_per_worker=1))
    for wrong, hint in ((3, "CheckpointStrategy(num_to_keep=2)"),
                        ({"num_to_keep": 1}, "CheckpointStrategy(**{'num_to_keep': 1})")):
        assert f"hint: {hint}" in said(lambda: one.run(train, checkpoint_strategy=wrong))
    assert "config={'lr': …}" in said(lambda: one.run(train, lr=1))  # type: ignore[call-arg]
    assert "must be a list" in said(lambda: one.run(train, callbacks=print))  # type: ignore
    assert "no handle_result" in said(lambda: one.run(train, callbacks=[print]))
    assert "torch.load('ckpt.pt')" in said(lambda: one.run(train, checkpoint="ckpt.pt"))
    assert "the function itself" in said(lambda: one.run("train"))  # type: ignore[arg-type]
    assert "must be a Dataset" in said(lambda: one.run(train, dataset=[1]))
    assert "must be a function" in said(lambda: one.execute(3))  # type: ignore[arg-type]
    assert "must be a function" in said(lambda: one.start(3))
    assert "directory of a run" in said(lambda: Trainer.restore(3))  # type: ignore[arg-type]
    assert "hint: report(**metrics)" in said(lambda: one.run(lambda: sgd.report({"a": 1})))
    assert "hint: save_checkpoint(model=" in said(
        lambda: one.run(lambda: sgd.save_checkpoint(1, 2)))
    assert "such as 'cuda', not 'x'" in said(lambda: one.run(lambda: sgd.load_checkpoint("x")))
    with pytest.raises(ZeroDivisionError):
        one.start(initialization_hook=lambda: 1 / 0)
    one.start(initialization_hook=train)  # in its place


def test_a_score_that_nobody_reports_is_refused(one: Trainer,
                                                capfd: pytest.CaptureFixture[str]) -> None:
    def train(config: dict[str, Any]) -> int:
        sgd.save_checkpoint(x=0)  # nothing was reported yet: there is nothing to compare with
        sgd.report(loss=config["loss"])
        sgd.save_checkpoint(x=1)
        return 1

    for name, loss in (("nope", 1.0), ("loss", "low")):
        strategy = CheckpointStrategy(1, name)
        assert f'the score "{name}", which no report before this save has as a number' in said(
            lambda: one.run(train, {"loss": loss}, checkpoint_strategy=strategy))
    strategy = CheckpointStrategy(1, "loss")
    assert one.run(train, {"loss": float("nan")}, checkpoint_strategy=strategy) == [1]
    with Trainer(None) as t:
        t.run(lambda: sgd.report(loss=1), checkpoint_strategy=CheckpointStrategy(1, "nope"))
    shown = capfd.readouterr()
    assert 'no report has the score "nope"' in shown.out + shown.err


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [
    "import manta.serve", "from manta import serve",
    "from manta.sgd import ScalingConfig",
    "from manta.sgd import HorovodTrainer", "from manta.sgd import TensorflowTrainer",
    "from manta.util.sgd.torch.resnet import ResNet18", "from manta.sgd import TrainingOperator",
    "from manta.util.sgd.v2.callbacks.callback import SGDCallback",
    "from manta.util.sgd.v2.trainer import Trainer", "import manta.sgd.torch",
    "from manta.experimental.sgd.pytorch import PyTorchRunner", "from manta import remote",
])
def test_what_is_not_in_this_version_says_so(statement: str) -> None:
    with pytest.raises(ImportError, match=r"is not in this version of manta\nhint: "):
        exec(statement)


def test_who_only_looks_finds_nothing() -> None:
    for owner, name in ((manta, "serve"), (manta, "remote"),
                        (sgd, "TrainingOperator"), (Trainer(None), "fit")):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=r"is not in this version of manta\nhint: "):
            getattr(owner, name)
    for module in ("manta.serve", "manta.nothing", "manta.sgd.callbacks.Nothing"):
        assert importlib.util.find_spec(module) is None
    with pytest.raises(AttributeError, match="hint: it has 'Trainer'"):
        sgd.Trainr
    with pytest.raises(AttributeError, match="hint: it has 'shutdown'"):
        Trainer(None).shutdwn
    with pytest.raises(ModuleNotFoundError, match="No module named 'manta.nothing'"):
        importlib.import_module("manta.nothing")
    with pytest.raises(ImportError, match=r"manta.sgd has no 'Trainr'\nhint: it has 'Trainer'"):
        exec("from manta.sgd import Trainr")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from manta.sgd import nothing")


def test_old_paths_have_what_imports_torch() -> None:
    pytest.importorskip("torch")
    for path in ("manta.util.sgd", "manta.util.sgd.v2", "manta.experimental.sgd", "manta.train"):
        found = importlib.import_module(path)
        assert found.prepare_model is sgd.prepare_model and found.Trainer is Trainer
        assert found.save_checkpoint is sgd.save_checkpoint


# --- init -----------------------------------------------------------------------------------------


def test_init_again_after_shutdown(tmp_path: Path) -> None:
    """And what was declared counts, whatever became of the trainers."""
    program = """
import os, sys, warnings
import manta
from manta.sgd import Trainer
assert not manta.is_initialized()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    manta.init("auto", num_cpus=2, ignore_reinit_error=True, log_to_driver=False, _temp_dir="x",
               object_store_memory=None)
assert [str(w.message) for w in told] == [
    "manta.init() ignores log_to_driver, _temp_dir: they mean nothing in manta"], told
assert manta.is_initialized()
t = Trainer(None, num_workers=2, cpus_per_worker=1, quiet=True)
assert t.run(lambda: 1) == [1, 1] and "2/2" in repr(t), repr(t)
try:
    manta.init(num_cpus=4)
except RuntimeError as e:
    assert "manta.shutdown() first" in str(e)
manta.init(num_cpus=4, ignore_reinit_error=True)
assert "2/2" in str(t)
for _ in range(2):
    manta.shutdown()
    assert not manta.is_initialized() and "MANTA_NUM_CPUS" not in os.environ
manta.init(num_cpus=5)
assert t.run(lambda: 2) == [2, 2] and "2/5" in repr(t), repr(t)
t.shutdown()
manta.init(num_cpus=7)
assert t.run(lambda: 3) == [3, 3] and "2/7" in str(t), str(t)
for wrong in ({"num_cpus": "a"}, {"num_cpu": 2}, {"address": "ray://x"}, {"resources": 3},
              {"resources": {"CPU": 3}}):
    try:
        manta.init(**wrong)
    except (TypeError, ValueError) as e:
        assert "hint" in str(e) or "must be" in str(e), e
    else:
        raise AssertionError(wrong)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=50, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_repr_of_a_trainer_is_its_table() -> None:
    t = Trainer(None, num_workers=2)
    assert repr(t) == str(t) and "not started" in repr(t)
    shown: list[str] = []

    class Printer:
        text = staticmethod(shown.append)
    t._repr_pretty_(Printer(), False)  # as a notebook does
    assert shown == [str(t)]
