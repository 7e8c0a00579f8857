# SPDX-License-Identifier: Apache-2.0
"""Objects as the tensors and the value of a checkpoint, without a run."""

from __future__ import annotations

import ctypes
import pickle
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from manta import _manta, _state  # noqa: E402

BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4,
         "F32": 4, "U64": 8, "I64": 8, "F64": 8}


class Kept:
    """What a checkpoint would be: its bytes are copies."""

    def __init__(self, rows: list[Any], value: Any):
        self.rows = []
        for name, dtype, shape, address in rows:
            size = BYTES[_manta.DTYPES[dtype]] * int(np.prod(shape, dtype=np.int64))
            self.rows.append((name, dtype, shape, bytearray(ctypes.string_at(address, size))))
        self._value = value

    def tensors(self) -> list[Any]:
        return self.rows

    def value(self) -> Any:
        return self._value


def kept(obj: Any) -> Any:
    rows, value, keep = _state.pack(obj)
    return Kept(rows, value)


def again(obj: Any) -> Any:
    return _state.restore(kept(obj))


def entries(obj: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (_manta.DTYPES[dtype], shape) for name, dtype, shape, _ in kept(obj).rows
            if name != "_pickle"}


def same_bits(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape or a.requires_grad != b.requires_grad:
        return False
    a, b = a.detach().contiguous(), b.detach().contiguous()
    return bool(a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8),
                                              b.reshape(-1).view(torch.uint8)))


# --- types and shapes -----------------------------------------------------------------------------

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
          torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (3, 5), (1, 2) * 5], ids=str)
def test_every_dtype_and_shape(dtype: Any, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape, dtype=np.int64))
    raw = torch.randint(0, 2, (count * dtype.itemsize,), dtype=torch.uint8)
    t = (raw.view(dtype) if count else torch.empty(0, dtype=dtype)).reshape(shape)
    got = again({"x": t})["x"]
    assert type(got) is torch.Tensor and same_bits(t, got)


def test_entries_are_what_they_are() -> None:
    state = {"model": {"w": torch.zeros(2, 3), "c": torch.zeros(4, dtype=torch.complex64)},
             "list": [torch.zeros(1, dtype=torch.bfloat16)], "deep": torch.zeros((1,) * 9),
             "f8": torch.zeros(5, dtype=torch.float8_e4m3fn), "n": np.zeros((2, 2), np.int16)}
    assert entries(state) == {
        "model.w": ("F32", (2, 3)), "model.c": ("F32", (4, 2)), "list.0": ("BF16", (1,)),
        "deep": ("F32", (1,)), "f8": ("U8", (5,)), "n": ("I16", (2, 2))}


def test_names_are_unique_and_possible() -> None:
    state: dict[Any, Any] = {
        "a": {"b": torch.zeros(1)}, "a.b": torch.ones(1), "x" * 2000: torch.ones(2),
        "nul\0": torch.ones(3), "\ud800": torch.ones(4), "_pickle": torch.ones(5),
        "": torch.ones(6), 7: torch.ones(7), "__metadata__": torch.ones(8),
        "_buffer.0": torch.ones(9)}
    names = [row[0] for row in kept(state).rows]
    assert len(set(names)) == len(names) == 11
    assert {"a.b", "7", "_pickle"} < set(names)
    got = again(state)
    assert all(same_bits(got[k], v) for k, v in state.items() if isinstance(v, torch.Tensor))


def test_a_module_gives_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    assert {"m.0.weight", "m.0.bias", "m.1.running_mean"} < set(entries({"m": model}))
    got = again({"m": model})["m"]
    assert all(same_bits(a, b) for a, b in zip(model.parameters(), got.parameters()))


# --- memory ---------------------------------------------------------------------------------------


def test_contiguous_tensors_are_not_copied() -> None:
    t = torch.randn(1000)
    rows, _, keep = _state.pack({"t": t, "p": torch.nn.Parameter(t[:10])})
    assert (rows[0][0], rows[0][3]) == ("t", t.data_ptr())


def test_tied_weights_are_written_once() -> None:
    w = torch.nn.Parameter(torch.randn(4, 5))
    state = {"a": w, "b": w.detach(), "same": w}
    assert set(entries(state)) == {"a"}
    got = again(state)
    assert got["a"] is got["same"] and type(got["a"]) is torch.nn.Parameter
    got["b"][1, 1] = 42
    assert got["a"][1, 1] == 42 and got["b"].untyped_storage().data_ptr() == got["a"].data_ptr()


def test_views_share_after_load() -> None:
    x = torch.arange(20.0).reshape(4, 5)
    state = {"row": x[1], "t": x.t(), "x": x, "step": x[::2], "bits": x.view(torch.int32)}
    assert entries(state) == {"x": ("F32", (4, 5))}
    got = again(state)
    assert all(same_bits(got[k], v) for k, v in state.items())
    got["x"][1, 2] = -1
    assert got["row"][2] == -1 and got["t"][2, 1] == -1


def test_overlapping_parts_of_what_is_not_there() -> None:
    x = torch.arange(100.0)
    state = {"a": x[10:30], "b": x[20:40], "apart": x[60:70], "mixed": x[20:22].view(torch.int16)}
    assert entries(state) == {"_buffer.0": ("U8", (120,)), "apart": ("F32", (10,))}
    got = again(state)
    assert all(same_bits(got[k], v) for k, v in state.items())
    got["a"][10] = 5
    assert got["b"][0] == 5


def test_a_part_does_not_drag_its_storage_along() -> None:
    big = torch.zeros(1_000_000)
    rows = kept({"head": big[:10], "tail": big[-10:]}).rows
    assert sum(len(row[3]) for row in rows) < 10_000


def test_not_contiguous() -> None:
    x = torch.randn(2, 3, 4, 5)
    cl = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state = {"t": x.permute(3, 1, 0, 2), "cl": cl, "step": torch.randn(10)[::3]}
    assert entries(state) == {"t": ("F32", (5, 3, 2, 4)), "cl": ("F32", (2, 3, 4, 5)),
                              "step": ("F32", (4,))}
    got = again(state)
    assert all(same_bits(got[k], v) for k, v in state.items())


def test_expanded_is_written_as_little_as_it_is() -> None:
    t = torch.randn(1).expand(1_000_000)
    c = kept({"t": t})
    assert sum(len(row[3]) for row in c.rows) < 10_000
    assert same_bits(_state.restore(c)["t"], t)


# --- kinds ----------------------------------------------------------------------------------------


class Marked(torch.Tensor):
    pass


def test_parameters_subclasses_and_attributes() -> None:
    marked = torch.randn(3).as_subclass(Marked)
    marked.note = "mine"
    state = {"p": torch.nn.Parameter(torch.randn(2)), "marked": marked,
             "frozen": torch.nn.Parameter(torch.randn(2), requires_grad=False),
             "grad": torch.randn(2, requires_grad=True),
             "made": torch.randn(2, requires_grad=True) * 2}
    got = again(state)
    for key, value in state.items():
        assert type(got[key]) is type(value) and same_bits(got[key], value), key
    assert got["marked"].note == "mine" and "marked" in entries(state)


def test_what_goes_its_own_way() -> None:
    q = torch.quantize_per_tensor(torch.randn(6), 0.1, 3, torch.quint8)
    c = torch.randn(4, dtype=torch.complex64)
    state = {"sparse": torch.eye(4).to_sparse(), "csr": torch.eye(4).to_sparse_csr(), "q": q,
             "meta": torch.empty(3, 4, device="meta"), "conj": c.conj(),
             "rng": torch.get_rng_state()}
    got = again(state)
    assert torch.equal(got["sparse"].to_dense(), torch.eye(4)) and got["sparse"].is_sparse
    assert torch.equal(got["csr"].to_dense(), torch.eye(4))
    assert torch.equal(got["q"].int_repr(), q.int_repr()) and got["q"].q_scale() == q.q_scale()
    assert got["meta"].shape == (3, 4) and got["meta"].is_meta
    assert torch.equal(got["conj"], c.conj()) and torch.equal(got["rng"], state["rng"])


def test_numpy() -> None:
    state = {"a": np.arange(12.0).reshape(3, 4), "f": np.asfortranarray(np.random.rand(30, 20)),
             "step": np.arange(100)[::3], "o": np.array([1, "x"], dtype=object),
             "r": np.array([(1, 2.0)], dtype=[("i", "i4"), ("f", "f8")]), "s": np.float32(2.5),
             "z": np.zeros((0, 3))}
    got = again(state)
    for key, value in state.items():
        assert np.array_equal(got[key], value) and got[key].dtype == value.dtype, key
    got["a"][0, 0] = 99  # its own memory, and writable
    assert state["a"][0, 0] == 0


def test_any_object() -> None:
    class Here:
        def __init__(self) -> None:
            self.t = torch.ones(3)

    scale = 3
    state = (Here(), lambda x: x * scale, b"x" * 3_000_000, bytearray(b"y" * 100_000), {1: None},
             1 << 99)
    got = again(state)
    assert type(got) is tuple and torch.equal(got[0].t, torch.ones(3)) and got[1](2) == 6
    assert got[2:] == state[2:]
    loop: list[Any] = [torch.ones(1)]
    loop.append(loop)
    assert again(loop)[1][1][0] == 1


def test_optimizer_state() -> None:
    model = torch.nn.Linear(3, 3)
    opt = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    opt.step()
    assert "opt.state.0.exp_avg" in entries({"opt": opt.state_dict()})
    new = torch.optim.AdamW(model.parameters())
    new.load_state_dict(again({"opt": opt.state_dict()})["opt"])
    old, now = opt.state_dict()["state"][0], new.state_dict()["state"][0]
    assert torch.equal(now["exp_avg"], old["exp_avg"])


def test_the_next_save_has_the_same_layout() -> None:
    def layout(step: int) -> Any:
        tensors = {f"w{i}": torch.randn(10) for i in range(20)}
        return [row[:3] for row in _state.pack({**tensors, "step": step})[0]]
    assert layout(1) == layout(100_000)


# --- errors ---------------------------------------------------------------------------------------


def test_what_cannot_be_pickled_is_named() -> None:
    state = {"model": torch.ones(1), "extra": [1, {"lock": threading.Lock()}]}
    with pytest.raises(pickle.PicklingError, match=r'"extra.1.lock" \(_thread.lock\)'):
        _state.pack(state)


def test_no_trust_no_pickle() -> None:
    with pytest.raises(PermissionError, match="trust=True"):
        _state.restore(kept({"a": 1}), trust=False)


# --- before it is saved ---------------------------------------------------------------------------


def test_wrapped_models_and_prefixes() -> None:
    inner = torch.nn.Linear(2, 2)
    wrapped = torch.nn.DataParallel(inner)
    half = {"module.a": 1, "b": 2}
    state = {"model": wrapped, "sd": wrapped.state_dict(), "half": half, "list": [wrapped]}
    got = _state.clean(state)
    assert got["model"] is inner and got["list"] == [inner] and got["half"] is half
    assert list(got["sd"]) == ["weight", "bias"] and type(got["sd"]) is type(state["sd"])
    assert got["sd"]._metadata == inner.state_dict()._metadata
    assert list(state["sd"]) == ["module.weight", "module.bias"]  # the user's own is as it was
    torch.nn.Linear(2, 2).load_state_dict(got["sd"])


def test_a_dict_gets_its_time() -> None:
    assert _state.stamp({"a": 1})["_timestamp"] > 1_600_000_000
    assert _state.stamp([1]) == [1]
