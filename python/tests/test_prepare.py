# SPDX-License-Identifier: Apache-2.0
"""prepare_model, prepare_data_loader, prepare_optimizer, accelerate: alone and on two workers."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import subprocess
import sys
import warnings
from typing import Any, Iterator

import pytest
import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler,
                              SubsetRandomSampler, TensorDataset, WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler

from manta import _frameworks, sgd
from manta._frameworks.torch import device as _device
from manta._frameworks.torch import nest, prepare, registry, snapshot
from manta._frameworks.torch.loader import PreparedLoader

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    name: str


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    registry.clear()
    yield
    registry.clear()


@pytest.fixture
def keeping() -> registry.Registry:
    """As in a run: prepared objects are remembered."""
    known = registry.current()
    known.keeps = True
    return known


def as_rank(patch: pytest.MonkeyPatch, rank: int, size: int = 2) -> None:
    patch.setattr(_device, "world", lambda: (rank, size))


def numbers(n: int) -> TensorDataset:
    return TensorDataset(torch.arange(n))


def values(loader: Any) -> list[int]:
    return [int(v) for (batch,) in loader for v in batch]


# --- importing ------------------------------------------------------------------------------------


def test_sgd_names_them_without_importing_torch() -> None:
    code = ("import sys, manta, manta.sgd, manta.train\n"
            "assert 'accelerate' in dir(manta.sgd)\n"
            "from manta.sgd import *\n"
            "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
            "try: manta.sgd.nonsense\n"
            "except AttributeError: print('fine')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "fine\n", done.stderr


def test_both_generations_have_the_same_functions() -> None:
    import manta.train.torch as generation3
    for name in _frameworks.get("torch").functions:
        assert getattr(sgd, name) is getattr(generation3, name)


# --- the model ------------------------------------------------------------------------------------


def test_alone_a_model_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = torch.nn.Linear(2, 1)
    assert sgd.prepare_model(model) is model
    assert sgd.get_device() == torch.device("cpu")


def test_accelerate_speaks_both_languages() -> None:
    model, optimizer = torch.nn.Linear(2, 1), torch.optim.SGD([torch.zeros(1)], lr=0.1)
    assert sgd.accelerate(model, torch.nn.MSELoss()) is model
    assert sgd.accelerate(model, optimizer=optimizer) == (model, optimizer)
    assert sgd.accelerate(amp=False) is None
    assert sgd.accelerate() is None
    assert registry.current().amp is None


def test_accelerate_refuses_nonsense() -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(TypeError, match="loss must be a function or a module, not int"):
        sgd.accelerate(model, 5)
    with pytest.raises(ValueError, match="weights of its own"):
        sgd.accelerate(model, torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match="without a model"):
        sgd.accelerate(optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="'fp16' or 'bf16', not 'int3'"):
        sgd.accelerate(model, mixed_precision="int3")


def test_several_workers_need_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0)
    with pytest.raises(RuntimeError, match="no process group"):
        sgd.prepare_model(torch.nn.Linear(2, 1))
    frozen = torch.nn.Linear(2, 1).requires_grad_(False)
    assert sgd.prepare_model(frozen) is frozen


def test_optimizer_state_follows_the_weights() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    optimizer.state[weight] = {"momentum_buffer": torch.ones(2), "step": torch.zeros(())}
    assert sgd.prepare_optimizer(optimizer) is optimizer
    assert optimizer.state[weight]["momentum_buffer"].device.type == "meta"
    assert optimizer.state[weight]["step"].device.type == "cpu"


# --- batches --------------------------------------------------------------------------------------


def test_tensors_are_found_wherever_they_are() -> None:
    mixed = collections.defaultdict(list, a=[torch.ones(1)])
    o = {"p": Point(torch.ones(1), (torch.ones(2), "text")), "d": mixed, "n": None,
         "s": Sample(torch.ones(1), "cat")}
    seen: list[int] = []

    def count(t: torch.Tensor) -> torch.Tensor:
        seen.append(t.numel())
        return t + 1

    made = nest.change(o, count)
    assert sorted(seen) == [1, 1, 1, 2]
    assert type(made["p"]) is Point and made["p"].y[1] == "text"
    assert made["d"].default_factory is list and float(made["d"]["a"][0]) == 2
    assert made["s"].name == "cat" and float(made["s"].image) == 2
    assert float(o["s"].image) == 1  # type: ignore[attr-defined]


def test_batches_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "get_device", lambda: torch.device("meta"))
    data = [{"x": torch.ones(3), "label": 1} for _ in range(4)]
    plain = DataLoader(data, batch_size=2)  # type: ignore[arg-type]
    for batch in sgd.prepare_data_loader(plain, auto_transfer=False):
        assert batch["x"].device.type == "meta" and batch["x"].shape == (2, 3)
    for batch in sgd.prepare_data_loader(plain, move_to_device=False):
        assert batch["x"].device.type == "cpu"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert nest.to_device(packed, torch.device("meta")).data.device.type == "meta"


class Logged(torch.Tensor):
    """Says what is done to it, as a GPU's would."""
    log: list[str] = []

    def record_stream(self, stream: Any) -> None:
        Logged.log.append(f"used {int(self[0])}")

    def to(self, *args: Any, **kwargs: Any) -> Any:
        Logged.log.append(f"copy {int(self[0])}")
        return self


class Stream:
    def __init__(self, device: Any) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        Logged.log.append("wait")


def test_the_next_batch_is_copied_before_this_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "get_device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    Logged.log.clear()
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    moved: list[Any] = []
    monkeypatch.setattr(type(packed), "to", lambda *a, **k: moved.append(a) or packed)
    data = [(torch.tensor([i]).as_subclass(Logged), packed) for i in range(3)]
    for (x, same), i in zip(sgd.prepare_data_loader(data), range(3)):
        assert same is packed
        Logged.log.append(f"step {i}")
    assert Logged.log == ["copy 0", "wait", "used 0", "copy 1", "step 0", "wait", "used 1",
                          "copy 2", "step 1", "wait", "used 2", "step 2"]
    assert len(moved) == 3


# --- the loader -----------------------------------------------------------------------------------


def double(batch: list[Any]) -> Any:
    return [torch.stack([one[0] * 2 for one in batch])]


def hello(worker: int) -> None:
    pass


def test_a_loader_keeps_everything_but_its_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0)
    generator = torch.Generator()
    plain = DataLoader(numbers(10), batch_size=2, shuffle=True, num_workers=1, collate_fn=double,
                       timeout=20, worker_init_fn=hello, generator=generator, prefetch_factor=3,
                       persistent_workers=True, drop_last=True)
    assert len(values(plain)) == 10  # and its process stays
    loader = sgd.prepare_data_loader(plain)
    assert isinstance(loader, DataLoader) and len(loader) == 2 and len(plain) == 5
    for name in ("dataset", "batch_size", "num_workers", "collate_fn", "timeout", "worker_init_fn",
                 "generator", "prefetch_factor", "persistent_workers", "drop_last", "pin_memory"):
        assert getattr(loader, name) is getattr(plain, name), name
    assert isinstance(loader.sampler, DistributedSampler) and loader.sampler.shuffle
    first, second = values(loader), values(loader)
    assert len(first) == 4 and all(v % 2 == 0 for v in first) and first != second
    assert isinstance(plain.sampler, RandomSampler)
    assert sgd.prepare_data_loader(loader) is loader


def test_alone_a_loader_keeps_its_sampler() -> None:
    plain = DataLoader(numbers(5), batch_size=2)
    loader = sgd.prepare_data_loader(plain)
    assert loader.sampler is plain.sampler and values(loader) == [0, 1, 2, 3, 4]
    assert len(loader) == 3


def both_ranks(patch: pytest.MonkeyPatch, make: Any) -> list[PreparedLoader]:
    made = []
    for rank in (0, 1):
        as_rank(patch, rank)
        made.append(sgd.prepare_data_loader(make()))
    return made


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_divide_the_samples(monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> None:
    loaders = both_ranks(monkeypatch, lambda: DataLoader(numbers(12), 2, shuffle=shuffle))
    passes = [[values(loader) for loader in loaders] for _ in range(3)]
    for zero, one in passes:
        assert sorted(zero + one) == list(range(12)) and len(zero) == len(one)
    assert (passes[0] == passes[1] == passes[2]) is not shuffle


def test_an_uneven_rest_is_filled_or_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = both_ranks(monkeypatch, lambda: DataLoader(numbers(5), 2))
    assert [len(values(loader)) for loader in filled] == [3, 3]
    dropped = both_ranks(monkeypatch, lambda: DataLoader(numbers(5), 2, drop_last=True))
    assert sorted(sum(map(values, dropped), [])) == [0, 1, 2, 3]


def test_without_batches_samples_are_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    loaders = both_ranks(monkeypatch, lambda: DataLoader(numbers(6), batch_size=None))
    assert [[int(one[0]) for one in loader] for loader in loaders] == [[0, 2, 4], [1, 3, 5]]


def test_set_epoch_counts_more_than_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0)

    def make() -> Any:
        return sgd.prepare_data_loader(DataLoader(numbers(20), 20, shuffle=True))

    counted = make()
    orders = [values(counted) for _ in range(4)]
    told = make()
    told.set_epoch(2)
    assert [values(told), values(told)] == orders[2:]
    told.sampler.set_epoch(0)  # as scripts written for DistributedSampler do
    assert values(told) == orders[0]
    told.set_epoch(0)
    assert values(told) == orders[0]


def test_samplers_of_the_user_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    some = both_ranks(monkeypatch,
                      lambda: DataLoader(numbers(20), 2, sampler=SubsetRandomSampler(range(8))))
    for _ in range(2):
        torch.manual_seed(1)
        zero = values(some[0])
        torch.manual_seed(2)  # ranks need not have the same random state
        assert sorted(zero + values(some[1])) == list(range(8))
    weights = [0.0] * 10 + [1.0] * 10
    weighted = both_ranks(monkeypatch, lambda: DataLoader(
        numbers(20), 2, sampler=WeightedRandomSampler(weights, 30)))
    assert [len(values(loader)) for loader in weighted] == [15, 15]
    assert min(values(weighted[0])) >= 10


def test_picking_leaves_no_trace_in_the_random_state(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0)
    loader = sgd.prepare_data_loader(
        DataLoader(numbers(20), 2, sampler=SubsetRandomSampler(range(8)),
                   generator=torch.Generator()))
    before = torch.get_rng_state()
    values(loader)
    assert torch.equal(torch.get_rng_state(), before)


class Counting(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.tensor(i),) for i in range(3)])


class Batches(BatchSampler):
    pass


def test_what_cannot_be_divided_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 1)
    for make, words in ((lambda: DataLoader(Counting()), "an IterableDataset is not divided"),
                        (lambda: DataLoader(numbers(4), batch_sampler=Batches(range(4), 2, False)),
                         "a batch sampler of your own is not divided"),
                        (lambda: [(torch.tensor([1]),)], "a list is no DataLoader")):
        with pytest.warns(UserWarning, match=words):
            loader = sgd.prepare_data_loader(make())
        assert len(values(loader)) in (1, 3, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sgd.prepare_data_loader(make())


def test_what_is_divided_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 1)
    own: DistributedSampler[Any] = DistributedSampler(numbers(6), num_replicas=2, rank=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = sgd.prepare_data_loader(DataLoader(numbers(6), 2, sampler=own))
        assert loader.sampler is own
        whole = sgd.prepare_data_loader(DataLoader(Counting()), add_dist_sampler=False)
        batches = BatchSampler(own, 2, False)
        sgd.prepare_data_loader(DataLoader(numbers(6), batch_sampler=batches))
    assert values(whole) == [0, 1, 2]


def test_a_sampler_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter([0])

    as_rank(monkeypatch, 0)
    with pytest.raises(TypeError, match="Endless has no length"):
        sgd.prepare_data_loader(DataLoader(numbers(6), sampler=Endless()))


# --- what was prepared ----------------------------------------------------------------------------


def prepare_all() -> tuple[Any, Any, Any]:
    model = sgd.prepare_model(torch.nn.Linear(1, 1))
    optimizer = sgd.prepare_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))
    loader = sgd.prepare_data_loader(DataLoader(TensorDataset(torch.rand(8, 1)), 4, shuffle=True))
    return model, optimizer, loader


def one_pass(model: Any, optimizer: Any, loader: Any) -> list[float]:
    for (x,) in loader:
        optimizer.zero_grad()
        sgd.backward((model(x) + torch.rand(1)).square().mean())
        optimizer.step()
    return [p.item() for p in model.parameters()]


def test_what_was_prepared_is_collected_and_restored(keeping: registry.Registry,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle
    monkeypatch.setattr(_device, "get_device", lambda: torch.device("cpu"))
    torch.manual_seed(3)
    first = prepare_all()
    data = first[2].dataset
    one_pass(*first)
    saved = pickle.dumps(snapshot.collect())
    after = one_pass(*first)
    registry.clear()
    registry.current().keeps = True
    second = prepare_all()
    second[2].dataset.tensors = data.tensors
    snapshot.restore(pickle.loads(saved))
    assert one_pass(*second) == after


def test_another_program_is_not_restored(keeping: registry.Registry) -> None:
    assert snapshot.is_empty()
    prepare_all()
    assert not snapshot.is_empty()
    saved = snapshot.collect()
    sgd.prepare_model(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="has 1 models, this run has prepared 2"):
        snapshot.restore(saved)


def test_a_pass_is_announced_before_it_begins(keeping: registry.Registry) -> None:
    loader = sgd.prepare_data_loader(DataLoader(numbers(2)))
    seen: list[str] = []
    keeping.on_pass.append(lambda: seen.append("pass"))
    for _ in range(2):
        for _batch in loader:
            seen.append("batch")
    assert seen == ["pass", "batch", "batch"] * 2


def test_plain_code_does_not_hold_objects() -> None:
    prepare_all()
    known = registry.current()
    assert (known.models, known.optimizers, known.loaders) == ([], [], [])


@pytest.mark.parametrize("cpu", ["none", "ok", "trap"])
def test_a_run_sets_its_precision_first_and_once(keeping: registry.Registry, cpu: str,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """On any CPU, also on one where bf16 is guarded against."""
    monkeypatch.setattr(_device, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setenv("MANTA_AMX", cpu)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    sgd.prepare_model(torch.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="after a model had been prepared"):
        sgd.accelerate(amp=True)
    assert keeping.amp is None
    keeping.models.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        sgd.accelerate(amp=True)
    assert (keeping.amp is None) == bool(told) == (cpu == "trap")
    sgd.prepare_model(torch.nn.Linear(1, 1))
    sgd.accelerate(amp=True)  # says nothing new
    with pytest.raises(RuntimeError, match="another precision already"):
        keeping.precision = torch.float16
        sgd.accelerate(amp=True)


# --- two workers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trainer() -> Iterator[sgd.Trainer]:
    with sgd.Trainer(backend="torch", num_workers=2, quiet=True) as t:
        yield t


def regression() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, 16).unsqueeze(1)
    return x, 3 * x + 1


class Pairs(Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        x, y = regression()
        return x[i], y[i], i

    def __len__(self) -> int:
        return 16


def train(config: dict[str, Any]) -> dict[str, Any]:
    """The same function alone and on workers; the batch size is each worker's."""
    torch.manual_seed(7)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer = sgd.accelerate(model, torch.nn.MSELoss(), optimizer=optimizer)
    loader = sgd.prepare_data_loader(DataLoader(Pairs(), config["batch"]))
    read = []
    for _ in range(3):
        for x, y, i in loader:
            optimizer.zero_grad()
            sgd.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            read += i.tolist()
    return {"type": type(model).__name__, "weights": [p.item() for p in model.parameters()],
            "read": read, "models": len(registry.current().models)}


def test_two_workers_train_as_one_does(trainer: sgd.Trainer) -> None:
    zero, one = trainer.run(train, config={"batch": 4})
    alone = train({"batch": 8})
    assert zero["type"] == "DistributedDataParallel" and alone["type"] == "Linear"
    assert zero["weights"] == one["weights"]
    assert zero["weights"] == pytest.approx(alone["weights"], rel=1e-5)
    assert sorted(zero["read"] + one["read"]) == sorted(alone["read"])
    assert zero["models"] == 1


def names_and_back() -> bool:
    """A wrapped model loads what was saved with and without the wrapping."""
    model = sgd.prepare_model(torch.nn.Sequential(torch.nn.Linear(1, 1)))
    wrapped, plain = model.state_dict(), prepare.unwrap(model).state_dict()
    assert list(wrapped) == ["module.0.weight", "module.0.bias"]
    assert list(plain) == ["0.weight", "0.bias"]
    for state in (wrapped, plain):
        changed = {key: value + 1 for key, value in state.items()}
        model.load_state_dict(changed)
        assert [p.item() for p in model.parameters()] == [float(v) for v in changed.values()]
    try:
        model.load_state_dict({"0.weight": torch.zeros(1, 1)})
    except RuntimeError as e:
        return "module.0.bias" in str(e)
    return False


def test_a_wrapped_model_loads_plain_names(trainer: sgd.Trainer) -> None:
    assert trainer.run(names_and_back) == [True, True]


def what_is_left(config: dict[str, Any]) -> tuple[int, bool]:
    before = len(registry.current().models), registry.current().amp is not None
    sgd.accelerate(amp="bf16")
    sgd.prepare_model(torch.nn.Linear(1, 1), wrap_ddp=False)
    assert len(registry.current().models) == 1
    return before


def test_a_run_begins_with_nothing_prepared(trainer: sgd.Trainer) -> None:
    for _ in range(2):
        assert trainer.run(what_is_left) == [(0, False), (0, False)]


# --- a GPU ----------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_batches_are_read_ahead_onto_the_gpu() -> None:
    data = TensorDataset(torch.arange(4096 * 64).view(4096, 64), torch.arange(4096))
    loader = sgd.prepare_data_loader(DataLoader(data, 64, pin_memory=True))
    device = sgd.get_device()
    busy = torch.rand(2048, 2048, device=device)
    sums = []
    for x, i in loader:
        assert x.device == device and i.device == device
        for _ in range(5):  # so that copies run into the work of the step before
            busy = torch.nn.functional.normalize(busy @ busy)
        sums.append((x.sum(), i.sum()))
        del x, i  # the memory may be used again
    want = [(sum(range(b * 64 * 64, (b + 1) * 64 * 64)), sum(range(b * 64, (b + 1) * 64)))
            for b in range(64)]
    assert [(int(a), int(b)) for a, b in sums] == want


@pytest.mark.gpu
def test_a_model_and_its_optimizer_go_to_the_gpu() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # made before the model is moved
    loss = torch.nn.CrossEntropyLoss(weight=torch.ones(3))
    made, optimizer = sgd.accelerate(model, loss, optimizer=optimizer)
    assert next(made.parameters()).device == sgd.get_device() == torch.device("cuda", 0)
    assert loss.weight is not None and loss.weight.device.type == "cuda"
    before = made.weight.detach().clone()
    sgd.backward(made(torch.ones(1, 2, device=sgd.get_device())).sum())
    optimizer.step()
    assert not torch.equal(before, made.weight)


def train_on_gpu(config: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    end = train(config)
    return str(sgd.get_device()), str(_device.has_gpu()), end


@pytest.mark.gpu
@pytest.mark.deadline(180)
def test_workers_share_a_gpu() -> None:
    with sgd.Trainer("torch", num_workers=2, gpus_per_worker=0.5, quiet=True) as trainer:
        (device, _, zero), (_, _, one) = trainer.run(train_on_gpu, {"batch": 4})
    assert device == "cuda:0" and zero["weights"] == one["weights"]
    assert zero["type"] == "DistributedDataParallel"


@pytest.mark.gpu
@pytest.mark.deadline(180)
def test_a_worker_without_a_gpu_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with sgd.Trainer("torch", num_workers=1, quiet=True) as trainer:
        assert trainer.run(train_on_gpu, {"batch": 8})[0][:2] == ("cpu", "False")
