# SPDX-License-Identifier: Apache-2.0
"""Mixed precision. What scaling does to a step is tried on the CPU, in float32: it has the same
scaler; whether it helps fp16, on a GPU."""

from __future__ import annotations

import collections
import copy
import inspect
import io
import warnings
from typing import Any, Iterator

import pytest
import torch

from manta import sgd
from manta._frameworks.torch import amp, prepare, registry

CPU = torch.device("cpu")
Output = collections.namedtuple("Output", "logits count")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.inside: torch.dtype | None = None

    def forward(self, x: torch.Tensor, twice: bool = False) -> Output:
        y = self.fc(x)
        self.inside = y.dtype
        return Output({"y": y * 2 if twice else y}, 3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    registry.clear()
    yield
    registry.clear()


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, and with a CPU that says what it can."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("MANTA_AMX", "none")


@pytest.fixture(scope="module")
def bf16_net() -> Net:
    """conftest has told oneDNN what this CPU needs."""
    registry.clear()
    registry.current().amp = amp.Amp(CPU, torch.bfloat16)
    net = sgd.prepare_model(Net(), move_to_device=False)
    registry.clear()
    return net  # type: ignore[return-value]


# --- the choice -----------------------------------------------------------------------------------


def test_the_cpu_computes_in_bf16(on_cpu: None) -> None:
    for wanted in (True, "bf16", torch.bfloat16):
        assert amp.wanted_dtype(wanted, CPU) is torch.bfloat16
    for wanted in (False, None, "no", "fp32"):
        assert amp.wanted_dtype(wanted, CPU) is None
    with pytest.warns(UserWarning, match="fp16 is for GPUs"):
        assert amp.wanted_dtype("fp16", CPU) is torch.bfloat16
    made = amp.make(torch.bfloat16, CPU)
    assert made is not None and made.dtype is torch.bfloat16 and made.scaler is None


def test_a_cpu_that_misreports_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setenv("MANTA_AMX", "trap")
    with pytest.warns(UserWarning, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment"):
        assert amp.make(torch.bfloat16, CPU) is None
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX")
    assert amp.cpu_trap()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    assert amp.make(torch.bfloat16, CPU) is not None
    for described in ("none", "ok"):
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        monkeypatch.setenv("MANTA_AMX", described)
        assert amp.cpu_trap() is None


def test_accelerate_sets_it_for_what_follows(on_cpu: None) -> None:
    for call in (lambda: sgd.accelerate(amp=True), lambda: sgd.accelerate(True),
                 lambda: sgd.accelerate("bf16")):
        registry.clear()
        assert call() is None
        model = sgd.prepare_model(Net())
        assert isinstance(model.forward, amp.AmpForward)
    model = sgd.accelerate(Net())
    assert isinstance(model.forward, amp.AmpForward)


def test_accelerate_of_a_model_prepares_it_at_once(on_cpu: None) -> None:
    model = sgd.accelerate(Net(), torch.nn.MSELoss(), mixed_precision=True)
    assert isinstance(model, Net) and isinstance(model.forward, amp.AmpForward)
    first = model.forward
    assert sgd.prepare_model(model).forward is first  # not twice
    shared = registry.current().amp
    sgd.accelerate(Net(), mixed_precision=True)
    assert registry.current().amp is shared


# --- the model ------------------------------------------------------------------------------------


def test_inside_is_half_outside_is_float(bf16_net: Net) -> None:
    for made in (bf16_net(torch.ones(3, 4), twice=True), bf16_net.forward(torch.ones(3, 4))):
        assert bf16_net.inside is torch.bfloat16
        assert type(made) is Output and made.count == 3 and made.logits["y"].dtype is torch.float32
    made.logits["y"].sum().backward()
    assert bf16_net.fc.weight.grad is not None and bf16_net.fc.weight.dtype is torch.float32


def test_the_model_is_still_the_user_s(bf16_net: Net) -> None:
    assert type(bf16_net) is Net
    assert list(bf16_net.state_dict()) == ["fc.weight", "fc.bias"]
    assert list(inspect.signature(bf16_net.forward).parameters) == ["x", "twice"]


def test_a_copy_computes_in_half_too(bf16_net: Net) -> None:
    copied = copy.deepcopy(bf16_net)
    copied(torch.ones(1, 4))
    assert copied.inside is torch.bfloat16
    assert copied.forward.inner.__self__ is copied  # type: ignore[attr-defined]


def test_a_pickle_is_of_the_plain_model(bf16_net: Net) -> None:
    file = io.BytesIO()
    torch.save(bf16_net, file)
    assert b"manta" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    loaded(torch.ones(1, 4))
    assert loaded.inside is torch.float32
    assert loaded.forward.__self__ is loaded
    assert torch.equal(loaded.fc.weight, bf16_net.fc.weight)


# --- the scaler -----------------------------------------------------------------------------------


def scaled(growth_interval: int = 2) -> amp.Amp:
    """fp16's scaler, whose scale is small enough to change soon."""
    made = amp.Amp(CPU, torch.float16)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=growth_interval)
    registry.current().amp = made
    return made


def weights(n: int = 1) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(n)]


def sgd_of(*parameters: torch.nn.Parameter) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=0.5)


def test_backward_scales_and_step_unscales() -> None:
    used = scaled()
    (w,), (plain,) = weights(), weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    for i in range(4):
        optimizer.zero_grad()
        sgd.backward((w * w).sum())
        assert torch.equal(w.grad, 2 * w * used.scaler.get_scale())  # type: ignore[union-attr]
        optimizer.step()
        reference = sgd_of(plain)
        reference.zero_grad()
        (plain * plain).sum().backward()
        reference.step()
        assert torch.equal(w, plain), i
    used.settle()
    assert used.scaler is not None and used.scaler.get_scale() == 4096.0  # grew twice


def test_an_infinite_gradient_is_no_step() -> None:
    used = scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    sgd.backward((w * float("inf")).sum())
    optimizer.step()
    assert torch.equal(w, torch.ones(2))
    assert used.state_dict()["scale"] == 512.0  # what goes into a checkpoint has taken note of it


def test_gradients_add_up_over_several_backwards() -> None:
    scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    for _ in range(3):
        sgd.backward(w.sum())
    optimizer.step()
    assert torch.equal(w, torch.full((2,), -0.5))


def test_two_optimizers_share_a_backward() -> None:
    scaled(growth_interval=1)
    a, b = weights(2)
    one, two = sgd.prepare_optimizer(sgd_of(a)), sgd.prepare_optimizer(sgd_of(b))
    for _ in range(3):
        one.zero_grad()
        two.zero_grad()
        sgd.backward((a + b).sum())
        one.step()
        two.step()
    assert torch.equal(a, torch.full((2,), -0.5)) and torch.equal(b, a)


def test_a_second_step_is_of_the_same_gradients() -> None:
    scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    sgd.backward(w.sum())
    optimizer.step()
    optimizer.step()
    assert torch.equal(w, torch.zeros(2))


def test_clipping_sees_the_true_size() -> None:
    scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    sgd.backward(w.sum())
    sgd.unscale(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([w], 100.0)
    assert norm.item() == pytest.approx(2**0.5)
    optimizer.step()
    assert torch.equal(w, torch.full((2,), 0.5))


def test_backward_of_one_s_own_is_said() -> None:
    scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(sgd_of(w))
    w.sum().backward()
    with pytest.warns(UserWarning, match=r"call backward\(loss\) instead of loss.backward\(\)"):
        optimizer.step()
    assert torch.equal(w, torch.full((2,), 0.5))


@pytest.mark.parametrize("first", ["scheduler", "prepare"])
def test_schedulers_take_the_optimizer(first: str) -> None:
    scaled()
    (w,) = weights()
    optimizer: torch.optim.Optimizer = sgd_of(w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if first == "prepare":
            optimizer = sgd.prepare_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer = sgd.prepare_optimizer(optimizer)
        for _ in range(2):
            sgd.backward(w.sum())
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    assert torch.allclose(w, torch.full((2,), 0.45))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)


def test_the_optimizer_s_state_is_its_own() -> None:
    scaled()
    (w,) = weights()
    optimizer = sgd.prepare_optimizer(torch.optim.Adam([w]))
    assert isinstance(optimizer, torch.optim.Adam)
    sgd.backward(w.sum())
    optimizer.step()
    state = optimizer.state_dict()
    assert set(state) == {"state", "param_groups"} and set(state["state"][0]) == \
        {"step", "exp_avg", "exp_avg_sq"}
    copied = copy.deepcopy(optimizer)
    assert "step" not in vars(copied)


def test_fp16_wants_its_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare._amp, "make", lambda dtype, device: amp.Amp(CPU, torch.float16))
    with pytest.warns(UserWarning, match="fp16 needs its optimizer"):
        sgd.accelerate(Net(), mixed_precision="fp16")


# --- two workers ----------------------------------------------------------------------------------


def train_in_half() -> tuple[str, str, list[float]]:
    torch.manual_seed(5)
    sgd.accelerate(amp=True)
    model = sgd.prepare_model(Net())
    optimizer = sgd.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.ones(3, 4) * (1 + sgd.world_rank())
    for _ in range(2):
        optimizer.zero_grad()
        y = model(x).logits["y"]
        sgd.backward(y.square().mean())
        optimizer.step()
    net = prepare.unwrap(model)
    ends = [v for p in net.parameters() for v in p.flatten().tolist()]
    return str(net.inside), str(y.dtype), ends


@pytest.mark.deadline(120)
def test_two_workers_train_in_half() -> None:
    with sgd.Trainer(backend="torch", num_workers=2, quiet=True) as trainer:
        zero, one = trainer.run(train_in_half)
    assert zero[:2] == ("torch.bfloat16", "torch.float32")
    assert zero == one


# --- a GPU ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("wanted", ["fp16", "bf16", True])
def test_a_gpu_trains_in_half(wanted: Any) -> None:
    torch.manual_seed(0)
    device = sgd.get_device()
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    model, optimizer = sgd.accelerate(net, optimizer=optimizer, mixed_precision=wanted)
    x = torch.randn(256, 8, device=device)
    y = x[:, :1] * 2 - x[:, 1:2]
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        out = model(x)
        assert out.dtype is torch.float32
        loss = torch.nn.functional.mse_loss(out, y)
        sgd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    used = registry.current().amp
    assert used is not None and (used.scaler is not None) == (wanted == "fp16")
    if wanted is True:
        new = torch.cuda.get_device_capability(device) >= (8, 0)
        assert used.dtype is (torch.bfloat16 if new else torch.float16)
