# SPDX-License-Identifier: Apache-2.0
"""In a notebook: the one of the examples from top to bottom, and what happens to a cell that is
interrupted, fails or is run again. Headless: a real kernel, and messages as a browser sends."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

QUICKSTART = Path(__file__).resolve().parents[2] / "examples" / "notebooks" / "quickstart.ipynb"
CELL_S = 50.0
GONE_S = 10.0  # against hangs; it takes milliseconds

SETUP = """
import os, time
from manta import sgd
from manta.sgd import Trainer
trainer = Trainer(backend=None, num_workers=2)

def forever(config):
    print("rank 0 is", os.getpid())
    while True:
        sgd.report(pid=os.getpid())
        time.sleep(0.01)

def pids():
    return trainer.run(os.getpid)
"""


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


class Kernel:
    """A kernel of its own, a cell at a time."""

    def __init__(self) -> None:
        from jupyter_client.manager import start_new_kernel
        self.manager, self.client = start_new_kernel(kernel_name="python3")

    def start(self, code: str) -> None:
        self.client.execute(code, store_history=False)

    def message(self) -> tuple[str, dict[str, Any]]:
        got = self.client.get_iopub_msg(timeout=CELL_S)
        return got["msg_type"], got["content"]

    def finish(self) -> tuple[str, str]:
        """What the cell prints until it ends, and what its error says."""
        out, error = "", ""
        while True:
            kind, content = self.message()
            if kind == "stream":
                out += content["text"]
            elif kind == "error":
                error = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return without_colours(out), without_colours(error)

    def run(self, code: str) -> str:
        self.start(code)
        out, error = self.finish()
        assert not error, error
        return out

    def await_text(self, pattern: str) -> re.Match[str]:
        """Reads the output of the cell that runs until the pattern is in it."""
        text = ""
        while not (found := re.search(pattern, text)):
            kind, content = self.message()
            assert kind != "error", content
            text += content["text"] if kind == "stream" else ""
        return found

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    k = Kernel()
    k.run(SETUP)
    yield k
    k.close()


def is_gone(pid: int) -> bool:
    by = time.monotonic() + GONE_S
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > by:
            return False
        time.sleep(0.01)
    return True


# --- cells ----------------------------------------------------------------------------------------


def test_output_of_workers_is_that_of_the_cell(kernel: Kernel) -> None:
    out = kernel.run("""
def talk():
    print("rank", sgd.world_rank(), "talks")
trainer.run(talk);
""")
    assert "rank 0 talks\n" in out


def test_progress_is_one_display_that_changes(kernel: Kernel) -> None:
    kernel.start("""
def count():
    for i in range(1, 21):
        time.sleep(0.05)
        sgd.report(loss=1 / i)
trainer.run(count, callbacks=[sgd.ProgressCallback()]);
""")
    shown: list[tuple[str, str, str]] = []
    while True:
        kind, content = kernel.message()
        if kind.endswith("display_data"):
            shown.append((kind, content["transient"]["display_id"], content["data"]["text/html"]))
        assert kind != "error" and kind != "stream", content
        if kind == "status" and content["execution_state"] == "idle":
            break
    assert [kind for kind, *_ in shown].count("display_data") == 1 and len(shown) > 2
    assert len({page for _, page, _ in shown}) == 1
    assert "running" in shown[1][2] and "finished" in shown[-1][2]
    assert "0.05 at 20" in shown[-1][2] and "<table>" in shown[-1][2]


def test_a_cell_that_is_run_again_has_its_new_code(kernel: Kernel) -> None:
    for x in (1, 2):
        assert f"[{x}, {x}]" in kernel.run(f"def f():\n    return {x}\nprint(trainer.run(f))")


def test_an_interrupted_cell_leaves_nothing(kernel: Kernel) -> None:
    workers = eval(kernel.run("print(trainer.execute(os.getpid))"))
    kernel.start("trainer.run(forever)")
    assert kernel.await_text(r"rank 0 is (\d+)\n")[1] == str(workers[0])
    kernel.manager.interrupt_kernel()
    _, error = kernel.finish()
    assert "KeyboardInterrupt" in error
    assert all(is_gone(pid) for pid in workers)
    again = eval(kernel.run("print(pids())"))  # the same trainer, new workers
    assert len(again) == 2 and not set(again) & set(workers)


PICKLES = """
import pickle

class Result:
    def __init__(self, n):
        self.n = n

def again():
    import __main__
    return pickle.loads(pickle.dumps(Result(STEP))), __main__.Result is Result

STEP = 3
(one, same), *_ = trainer.run(again)
print(type(one) is Result, same, one.n)
"""


def test_classes_of_cells_are_those_of_the_workers(kernel: Kernel) -> None:
    assert kernel.run(PICKLES) == "True True 3\n"
    assert kernel.run(PICKLES.replace("STEP = 3", "STEP = 4")) == "True True 4\n"


def test_a_loop_over_a_run_is_interrupted_too(kernel: Kernel) -> None:
    kernel.start("for row in trainer.run_generator(forever):\n    print('row', row['pid'])")
    kernel.await_text(r"row (\d+)\n")
    kernel.manager.interrupt_kernel()
    _, error = kernel.finish()
    assert "KeyboardInterrupt" in error
    assert "[" in kernel.run("print(pids())")


FAILS = """
def share(total):
    parts = sgd.world_rank() - 1
    return total / parts

def fails(config):
    batch = config["batch"]
    return share(batch) if sgd.world_rank() == 1 else None

trainer.run(fails, config={"batch": 64})
"""


def test_a_failed_run_can_be_looked_at(kernel: Kernel) -> None:
    """The error is the user's, its traceback has the worker's lines, %debug has the frame."""
    kernel.start(FAILS)
    _, error = kernel.finish()
    assert "ZeroDivisionError" in error and "return total / parts" in error
    assert re.search(r"raised by rank 1", error), error
    kernel.client.allow_stdin = True
    kernel.client.execute("%debug", store_history=False)
    said = debug(kernel, ["p total, parts", "up", "p batch", "q"])
    assert re.search(r"-> \d+     return total / parts", said), said
    assert "(64, 0)" in said, said
    assert re.search(r"^64$", said, re.M), said


def debug(kernel: Kernel, commands: list[str]) -> str:
    """Types commands at the debugger's prompt; what was shown."""
    for command in commands:
        assert kernel.client.get_stdin_msg(timeout=CELL_S)["msg_type"] == "input_request"
        kernel.client.input(command)
    return kernel.finish()[0]


@pytest.mark.gpu
def test_cuda_may_be_in_use_in_the_kernel(kernel: Kernel) -> None:
    out = kernel.run("""
import torch
torch.ones(2, device="cuda").sum().item()
with Trainer(backend="torch", num_workers=2, use_gpu=True, gpus_per_worker=0.5) as t:
    print(t.run(lambda: torch.ones(3, device="cuda").sum().item()))
""")
    assert "[3.0, 3.0]" in out


# --- the notebook of the examples -----------------------------------------------------------------


def test_the_quickstart_is_stored_without_outputs() -> None:
    notebook = nbformat.read(QUICKSTART, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


def outputs(notebook: Any) -> list[str]:
    return ["".join(o.get("text", "") for o in c.outputs) for c in notebook.cells
            if c.cell_type == "code"]


def test_the_quickstart_runs() -> None:
    notebook = nbformat.read(QUICKSTART, as_version=4)
    nbclient.NotebookClient(notebook, timeout=CELL_S, kernel_name="python3").execute()
    table, _, live, values, dying, _ = outputs(notebook)
    assert "not started" in table
    assert len(re.findall(r"^epoch +\d+   loss 0\.\d+", live, re.M)) == 6, live
    assert "goes on" not in live
    assert values.count("\n") == 6
    assert "process" in dying and re.search("goes on after epoch 2[34]\\n", dying), dying
    assert re.search("^back at epoch 2[34]: a worker was replaced$", dying, re.M), dying
    assert live.splitlines()[-1] == dying.splitlines()[-1]  # the same loss
