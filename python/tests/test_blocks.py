# SPDX-License-Identifier: Apache-2.0
"""Which parts of a model are its blocks, and what the arguments for large models may say."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from manta._frameworks.torch import blocks  # noqa: E402
from manta._frameworks.torch.prepare import prepare_model  # noqa: E402
from manta._frameworks.torch.strategy import UNSAID, choose  # noqa: E402

nn = torch.nn


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, n: int = 4):
        super().__init__()
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self, depth: int = 3):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.last = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def names(model: Any, found: list[Any]) -> list[str]:
    return [next(n for n, m in model.named_modules() if m is block) for block in found]


# --- which ----------------------------------------------------------------------------------------


def test_repeated_blocks_are_found_wherever_they_lie() -> None:
    net = Net()
    assert names(net, blocks.repeated(net)) == ["blocks.2", "blocks.1", "blocks.0"]
    outer = nn.Sequential(nn.Linear(4, 4), Net(), nn.Linear(4, 4))
    assert names(outer, blocks.repeated(outer)) == ["1.blocks.2", "1.blocks.1", "1.blocks.0"]


def test_stages_of_blocks_are_no_blocks() -> None:
    stages = nn.Sequential(*(nn.Sequential(Block(), Block()) for _ in range(2)))
    assert names(stages, blocks.repeated(stages)) == ["1.1", "1.0", "0.1", "0.0"]
    lists = nn.ModuleList([nn.ModuleList([Block(), Block()]), nn.ModuleList([Block()])])
    assert names(lists, blocks.repeated(lists)) == ["0.1", "0.0"]


def test_a_block_may_be_a_sequence_of_layers_and_hold_lists() -> None:
    mlp = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
                          for _ in range(2)))
    assert names(mlp, blocks.repeated(mlp)) == ["1", "0"]

    class Experts(Net):
        pass
    mixture = nn.ModuleList([Experts(), Experts()])
    assert names(mixture, blocks.repeated(mixture)) == ["1", "0"]


def test_layers_alone_are_no_blocks_but_large_ones_count() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 400))
    assert blocks.repeated(model) == []
    assert names(model, blocks.large(model, 1000)) == ["2"]


def test_a_model_may_name_its_blocks() -> None:
    class Named(Net):
        _no_split_modules = ["Linear"]
    net = Named(1)
    assert names(net, blocks.repeated(net)) == ["last", "blocks.0.down", "blocks.0.up", "first"]


def test_blocks_are_chosen_by_class_name_or_function() -> None:
    net = Net(2)
    two = ["blocks.1", "blocks.0"]
    for wanted in (Block, "Block", [Block], {"Block", "Other"}, (Block, nn.Conv1d),
                   lambda m: isinstance(m, Block)):
        assert names(net, blocks.chosen(net, wanted)) == two
    assert blocks.chosen(net, lambda m: False) == []
    for wanted, words in ((nn.Conv1d, "no block of class Conv1d\nhint: it has Block, Linear"),
                          (nn.ModuleList, "ModuleList is never called"),
                          (7, "not by 7"), (Block(), "not by an object of it\nhint: Block")):
        with pytest.raises((TypeError, ValueError), match=words):
            blocks.chosen(net, wanted)


def test_tied_weights_belong_to_the_whole_model() -> None:
    net = Net()
    net.blocks[1].up.weight = net.blocks[2].up.weight
    assert names(net, blocks.separate(net, blocks.repeated(net))) == ["blocks.0"]
    net.blocks[0].up.bias = net.blocks[0].down.weight  # inside of one
    assert names(net, blocks.separate(net, blocks.repeated(net))) == ["blocks.0"]


# --- computing them again -------------------------------------------------------------------------


def test_blocks_are_computed_again_with_the_same_gradients() -> None:
    plain, again = Net(), Net()
    again.load_state_dict(plain.state_dict())
    prepare_model(again, False, activation_checkpointing=True)  # plain code would take a GPU
    x = torch.randn(5, 4)
    for net in (plain, again):
        net(x).square().sum().backward()
    assert [b.calls for b in plain.blocks] == [1, 1, 1]
    assert [b.calls for b in again.blocks] == [2, 2, 2]
    for (name, a), b in zip(plain.named_parameters(), again.parameters()):
        assert torch.equal(a.grad, b.grad), name
    assert list(again.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(again.state_dict())
    prepare_model(again, False, activation_checkpointing=True)  # once is enough
    again(x).sum().backward()
    assert [b.calls for b in again.blocks] == [4, 4, 4]


def test_what_to_compute_again_may_be_named() -> None:
    net = prepare_model(Net(), activation_checkpointing="Linear")
    assert type(net.first).__name__ == type(net.blocks[0].up).__name__ == "CheckpointWrapper"
    assert type(net.blocks[0]) is Block
    nested = prepare_model(Net(), activation_checkpointing=(Block, nn.Linear))  # the outer ones
    assert type(nested.blocks[0]._checkpoint_wrapped_module.up) is nn.Linear
    with pytest.raises(ValueError, match="no repeated blocks\nhint: activation_checkpointing=Bl"):
        prepare_model(nn.Linear(2, 2), activation_checkpointing=True)


# --- arguments ------------------------------------------------------------------------------------


def test_a_strategy_is_chosen() -> None:
    assert choose(True, None, UNSAID, None) == ("ddp", {})
    assert choose(False, None, UNSAID, None) == (None, {})
    assert choose(True, {"a": 1}, UNSAID, None) == ("ddp", {"a": 1})
    assert choose(True, None, None, None) == (None, {})
    assert choose(True, None, "fsdp", {"wrap": Block}) == ("fsdp", {"wrap": Block})
    # By position as Ray has them.
    assert choose("fsdp", {"a": 1}, UNSAID, None) == ("fsdp", {"a": 1})
    assert choose(None, None, UNSAID, None) == (None, {})


@pytest.mark.parametrize("given, words", [
    ((True, None, "fsdp2", None), "not 'fsdp2'\nhint: 'fsdp' is FSDP2"),
    ((True, None, "deepspeed", None), "hint: 'fsdp' divides .* as ZeRO"),
    ((True, None, "tp", None), "'ddp', 'fsdp' or None, not 'tp'"),
    ((False, None, "fsdp", None), "wrap_ddp=False .*\nhint: leave wrap_ddp out"),
    ((True, {"a": 1}, "fsdp", None), "hint: parallel_strategy_kwargs"),
    ((True, {"a": 1}, "ddp", {"b": 1}), "give one of them"),
])
def test_wrong_combinations_say_what_to_write(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        choose(*given)


def test_a_strategy_is_given_once() -> None:
    with pytest.raises(TypeError, match="given twice, 'ddp' and 'fsdp'"):
        choose("ddp", None, "fsdp", None)


@pytest.mark.parametrize("option, words", [
    ("auto_wrap_policy", "hint: wrap=Block"), ("sharding_strategy", "reshard_after_forward=True"),
    ("mixed_precision", "mp_policy="), ("device_id", "leave it out"), ("wrong", "they are wrap, "),
])
def test_options_of_fsdp_are_checked(option: str, words: str) -> None:
    from manta._frameworks.torch import fsdp
    with pytest.raises(TypeError, match=f"no option '{option}'\n.*{words}"):
        fsdp.Options.of({option: 1})


def test_options_of_fsdp_exclude_each_other() -> None:
    from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy

    from manta._frameworks.torch import fsdp
    with pytest.raises(TypeError, match="exclude each other"):
        fsdp.Options.of({"cpu_offload": True, "offload_policy": CPUOffloadPolicy()})
    for yes in (True, CPUOffload(offload_params=True)):
        assert "offload_policy" in fsdp.Options.of({"cpu_offload": yes}).torch
    assert not fsdp.Options.of({"cpu_offload": CPUOffload()}).torch


def test_without_a_process_group_the_model_stays_whole() -> None:
    net = Net()
    assert prepare_model(net, parallel_strategy="fsdp") is net
    assert type(net.first.weight) is nn.Parameter
