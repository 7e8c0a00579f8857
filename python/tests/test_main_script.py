# SPDX-License-Identifier: Apache-2.0
"""The main script in its workers: what it defines is there as if each had run it, however it was
started, and none has. Real programs, each with its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 50.0


def run(*command: str, given: str | None = None, cwd: Path | None = None) -> str:
    """What it and its workers print, if it ends well."""
    done = subprocess.run([sys.executable, *command], input=given, cwd=cwd, text=True,
                          capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# --- definitions of every kind --------------------------------------------------------------------


SCRIPT = '''
"""A script."""
import abc, argparse, collections, concurrent.futures, contextlib, copy, dataclasses, enum
import functools, logging, multiprocessing, os, pickle, sys, threading, typing
from manta import sgd
from manta.sgd import Trainer

print("top level in", __name__)
log = logging.getLogger(__name__)
UserId = typing.NewType("UserId", int)
T = typing.TypeVar("T")
SCALE, counter, REGISTRY, unrelated = 7, 0, {}, threading.Lock()
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

def register(cls):
    REGISTRY[cls.__name__] = cls
    return cls

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Point(typing.NamedTuple):
    x: int
    y: int = 2

Pair = collections.namedtuple("Pair", "a b")

@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 0.1
    tags: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(order=True, slots=True)
class Slotted:
    a: int

class Base(abc.ABC):
    labels = []
    def __init__(self, x):
        self.x = x
    def __init_subclass__(cls, label, **rest):
        super().__init_subclass__(**rest)
        Base.labels.append((label, cls.kind))
    @abc.abstractmethod
    def value(self): ...

@register
class Child(Base, label="child"):
    kind = "leaf"
    def __init__(self, x):
        super().__init__(x)
    def value(self):
        return self.x * SCALE
    @classmethod
    def make(cls):
        return cls(3)
    @functools.cached_property
    def slow(self):
        return self.value() + 1
    class Inner:
        pass

class Meta(type):
    def __new__(meta, name, bases, space):
        space["note"] = space["__doc__"].upper()
        return super().__new__(meta, name, bases, space)

class Noted(metaclass=Meta):
    """noted"""

class Key:
    def __init__(self, v):
        self.v = v
    def __hash__(self):
        return hash((SCALE, self.v))
    def __eq__(self, other):
        return self.v == other.v

class Box(typing.Generic[T]):
    def __init__(self, v: T):
        self.v = v

class Shape(typing.TypedDict):
    sides: int

TABLE = {Key(1): "one"}

class NotReached:
    def scaled(self):
        return SCALE, helper()

def helper():
    return Color.RED

@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@contextlib.contextmanager
def scaled():
    yield SCALE

@functools.singledispatch
def kind_of(x):
    return "object"

@kind_of.register
def _(x: int):
    return "int"

def counters():
    n = 0
    def up():
        nonlocal n
        n += 1
    return up, lambda: n

up, now = counters()

def bump():
    global counter
    counter += 1

def square(x):
    return x * x

def hold():
    return unrelated  # cannot travel, and is not used

class DataError(Exception):
    def __init__(self, path, line):
        super().__init__(f"{path}:{line}")
        self.path, self.line = path, line

def again(o):
    return pickle.loads(pickle.dumps(o))

def train(config):
    main = sys.modules["__main__"]
    assert train is main.train and train.__globals__ is vars(main) and __name__ == "__main__"
    assert os.path.basename(__file__) == "script.py" and __doc__ == "A script."
    assert config["color"] is Color.RED and type(config["config"]) is Config is main.Config
    for o in (Color.RED, Point(1), Pair(1, 2), Config(), Slotted(1), Key(1)):
        assert again(o) == o and type(again(o)) is type(o), o
    assert again(Child.Inner) is Child.Inner and again(fib) is fib and again(UserId) is UserId
    bump(), bump()
    assert counter == main.counter == 2
    child = Child.make()
    main.SCALE = 70
    assert child.value() == 210 and child.slow == 211
    main.SCALE = 7
    assert TABLE[Key(1)] == "one" and Box[int](3).v == 3 and Shape(sides=3)["sides"] == 3
    assert fib(30) == 832040 and REGISTRY["Child"] is Child and Noted.note == "NOTED"
    assert Base.labels == [("child", "leaf")]
    with scaled() as s:
        assert s == 7
    assert (kind_of(1), kind_of("a")) == ("int", "object")
    assert eval("NotReached().scaled()") == (7, Color.RED) and globals()["Noted"] is Noted
    up(), up()
    assert now() == 2
    assert args.lr == 3.0 and sys.argv[1:] == ["--lr", "3"]
    threads = [threading.Thread(target=bump) for _ in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert counter == 5
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(square, [2, 3]) == [4, 9]
    with concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context(config["start"])) as pool:
        assert list(pool.map(square, [3])) == [9] and pool.submit(Child.make).result().x == 3
        assert pool.submit(copy.copy, Color.RED).result() is Color.RED
    error = DataError(1, 2)
    return child, Color.BLUE, Point(3), Config(0.5), Slotted(3), square, Child.Inner, error

if __name__ == "__main__":
    trainer = Trainer(None, num_workers=2, quiet=True)
    for start in ("spawn", "forkserver"):
        results = trainer.run(train, {"color": Color.RED, "config": Config(), "start": start})
    for child, color, point, config, slotted, f, inner, error in results:
        assert type(child) is Child and child.x == 3 and color is Color.BLUE and point == Point(3)
        assert type(config) is Config and type(slotted) is Slotted and f is square
        assert inner is Child.Inner and (error.path, error.line) == (1, 2)
    assert counter == 0 and now() == 0
    print("all is well")
'''


def test_a_script_file(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    said = run("script.py", "--lr", "3", cwd=tmp_path).splitlines()
    assert said == ["top level in __main__", "all is well"]  # spawned ones speak in the workers


# --- however it was started -----------------------------------------------------------------------


SHORT = '''
import functools, pickle, sys
from manta.sgd import Trainer

class Result:
    def __init__(self, n):
        self.n = n

@functools.lru_cache
def twice(n):
    return 2 * n

def train():
    main = sys.modules["__main__"]
    assert main.Result is Result and pickle.loads(pickle.dumps(twice)) is twice
    return pickle.loads(pickle.dumps(Result(twice(4))))

if __name__ == "__main__":
    results = Trainer(None, num_workers=1).run(train)
    assert type(results[0]) is Result
    print("result", results[0].n)
'''


@pytest.mark.parametrize("command", [["-"], ["-c", SHORT], ["-i", "-q"]])
def test_without_a_file(command: list[str]) -> None:
    repl = "-i" in command  # which takes a blank line for the end of a definition
    given = SHORT.replace("\n\n", "\n") if repl else SHORT
    if repl:
        given = given.replace("\nclass", "\n\nclass").replace("\n@", "\n\n@")
        given = given.replace("\ndef", "\n\ndef", 2).replace("twice\n\ndef", "twice\ndef", 1)
        given = given.replace("cache\n\n", "cache\n").replace("\nif", "\n\nif") + "\n"
    assert "result 8\n" in run(*command, given=given)


def test_a_module(tmp_path: Path) -> None:
    """-m: relative imports work, and spawned processes import it by its name."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("value = 8\n")
    (package / "job.py").write_text(SHORT.replace('''    main = sys''', '''
    import multiprocessing
    from .other import value
    assert value == 8 and __spec__.name == "package.job"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(Result, (3,)).n == 3
    main = sys'''))
    assert "result 8\n" in run("-m", "package.job", cwd=tmp_path)


def test_a_trainer_that_is_not_guarded(tmp_path: Path) -> None:
    """In a process that a worker spawns it fails, and says how to guard it."""
    (tmp_path / "script.py").write_text('''
import multiprocessing
from manta.sgd import Trainer

def square(x):
    return x * x

def train():
    child = multiprocessing.get_context("spawn").Process(target=square, args=(2,))
    child.start()
    child.join()
    return child.exitcode

print("code", Trainer(None, num_workers=1).run(train))
''')
    said = run("script.py", cwd=tmp_path)
    assert "code [1]" in said and 'if __name__ == "__main__":' in said, said


def test_what_nobody_uses_costs_nothing(tmp_path: Path) -> None:
    """Neither a large value nor a module that only the driver uses goes to a worker."""
    (tmp_path / "costly.py").write_text("print('costly in', __name__)\n")
    (tmp_path / "script.py").write_text('''
import sys
import costly
from manta.sgd import Trainer

class Refuses:
    def __reduce__(self):
        raise RuntimeError("must not be pickled")

large = [Refuses()]

def plot():
    return costly, large

def train():
    assert "costly" not in sys.modules and "large" not in globals() and "plot" not in globals()
    import __main__
    __main__.plot
    assert "costly" in sys.modules
    return "small"

print(Trainer(None, num_workers=1, quiet=True).run(train))
''')
    assert run("script.py", cwd=tmp_path) == "costly in costly\n['small']\n"


def test_a_checkpoint_has_the_scripts_classes(tmp_path: Path) -> None:
    """After a death, in the driver, and in another run of the script."""
    (tmp_path / "script.py").write_text('''
import os, signal, sys
from dataclasses import dataclass
from manta import sgd
from manta.sgd import Trainer

NAME = "step"

@dataclass
class State:
    step: int
    def label(self):
        return f"{NAME} {self.step}"

def train():
    found = sgd.load_checkpoint()
    if found is None:
        sgd.save_checkpoint(state=State(4))
        os.kill(os.getpid(), signal.SIGKILL)
    assert type(found["state"]) is State is sys.modules["__main__"].State
    assert State.label.__globals__ is globals()
    return found["state"].label()

trainer = Trainer(None, num_workers=1, quiet=True)
if len(sys.argv) > 1:
    print(trainer.run(train, checkpoint=sys.argv[1], trust=True))
else:
    print(trainer.run(train), type(trainer.get_last_checkpoint()["state"]) is State)
    print(sorted(trainer.latest_checkpoint_dir.iterdir())[-1])
''')
    said, path = run("script.py", cwd=tmp_path).splitlines()
    assert said == "['step 4'] True"
    assert run("script.py", path, cwd=tmp_path) == "['step 4']\n"


# --- with torch -----------------------------------------------------------------------------------


TORCH = '''
import io, multiprocessing, sys
import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from manta.sgd import Trainer

class Squares(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return i * i

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x):
        return Twice.apply(self.layer(x))

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, g):
        return 2 * g

class Result:
    def __init__(self, rank):
        self.rank = rank

@torch.no_grad()
def evaluate(net):
    return net(torch.ones(1, 1)).requires_grad

def train():
    cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    assert torch.ops.aten.relu(torch.tensor(-1.0)) == 0
    found = [None, None]
    dist.all_gather_object(found, Result(dist.get_rank()))
    assert [r.rank for r in found] == [0, 1] and type(found[1]) is Result
    one = [Result(5) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(one)
    assert one[0].rank == 5
    file = io.BytesIO()
    net = Net()
    torch.save(net, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert type(again) is Net and not evaluate(net)
    again(torch.ones(1, 1)).sum().backward()
    assert again.layer.bias.grad.item() == 2
    if dist.get_rank() == 0:
        loader = DataLoader(Squares(), 4, num_workers=1, multiprocessing_context="spawn")
        assert [b.sum().item() for b in loader] == [14, 126]
    return again

if __name__ == "__main__":
    nets = Trainer("torch", num_workers=2, quiet=True).run(train)
    assert all(type(n) is Net for n in nets)
    print("all is well")
'''


def test_a_script_with_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "script.py").write_text(TORCH)
    assert run("script.py", cwd=tmp_path) == "all is well\n"


# --- what cannot travel ---------------------------------------------------------------------------


def test_what_cannot_travel_is_named_by_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text('''
import functools, threading
from manta.sgd import Trainer

class Loader:
    def __init__(self):
        self.lock = threading.Lock()

loader = Loader()

def batches():
    return loader

def train(config):
    return batches()

trainer = Trainer(None, num_workers=1)
inner = Loader()

def attempt(function, config=None):
    try:
        trainer.run(function, config)
    except TypeError as e:
        print(str(e).splitlines()[1].strip())

attempt(train)
attempt(lambda config: 1, {"a": [1, {"b": loader}]})
attempt(functools.partial(lambda config, x=None: 1, x=loader))
attempt((lambda x: lambda: x)(loader))
attempt(lambda x=loader: 1)
assert trainer.latest_run_dir is None
''')
    why = "attribute 'lock': cannot pickle '_thread.lock' object"
    said = run("script.py", cwd=tmp_path).splitlines()
    assert said[0] == f"train -> global 'batches' -> global 'loader' -> {why}"
    assert said[1] == f"the config -> entry 'a' -> item 1 -> entry 'b' -> {why}"
    assert said[2].endswith(f" -> argument 'x' -> {why}")
    assert said[3].endswith(f"-> variable 'x' -> {why}")
    assert said[4] == f"<lambda> -> default 0 of its arguments -> {why}"
