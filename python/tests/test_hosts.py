# SPDX-License-Identifier: Apache-2.0
"""Runs on several hosts: commands on this machine, which go the whole way but for a network, and
network namespaces with cables between them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import manta
from manta import _command, sgd
from manta._runtime import driver
from manta.sgd import Host, Trainer

AGENT = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"


# --- without a network ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """Two ranks on each of two hosts."""
    hosts = [Host("a", 2, AGENT), Host("b", 2, AGENT)]
    with Trainer(backend=None, num_workers=(4, 4), hosts=hosts, show_all_output=True,
                 logdir=tmp_path_factory.mktemp("runs")) as trainer:
        yield trainer


def test_ranks_are_given_out_host_by_host(four: Trainer) -> None:
    def look() -> tuple[int, ...]:
        return (sgd.world_rank(), sgd.world_size(), sgd.local_rank(), sgd.local_world_size(),
                sgd.node_rank())
    assert four.run(look) == [(0, 4, 0, 2, 0), (1, 4, 1, 2, 0), (2, 4, 0, 2, 1), (3, 4, 1, 2, 1)]
    lines = [line for line in str(four).splitlines() if " idle " in line]
    assert [line.split("│")[2].strip() for line in lines] == ["a", "a", "b", "b"]


def test_directory_environment_and_path_follow_the_driver(
        four: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_hosts.py").write_text("VALUE = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTS_TEST", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])

    def look() -> tuple[Any, ...]:
        import module_of_hosts  # type: ignore[import-not-found]
        return os.getcwd(), os.environ.get("HOSTS_TEST"), module_of_hosts.VALUE, sys.argv

    assert four.run(look) == [(str(tmp_path), "1", "mine", ["train.py", "--fast"])] * 4
    monkeypatch.delenv("HOSTS_TEST")
    assert four.run(lambda: os.environ.get("HOSTS_TEST")) == [None] * 4


def test_rows_output_and_returns_come_back(four: Trainer,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    def train(config: dict[str, Any]) -> tuple[int, Any]:
        for i in range(3):
            print(f"step {i}")
            sgd.report(i=i, rank=sgd.world_rank(), thing={sgd.world_rank()})
        return sgd.world_rank(), config

    rows = four.run_generator(train, config={"x": [1, {"y": None}]})
    seen = [[(row["i"], row["rank"], row["thing"]) for row in step] for step in rows]
    assert seen == [[(i, r, {r}) for r in range(4)] for i in range(3)]
    assert rows.get_returns() == [(r, {"x": [1, {"y": None}]}) for r in range(4)]
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"(rank {r}) step {i}" for r in range(4) for i in range(3))
    for r in range(4):
        assert four.latest_run_dir is not None
        log = four.latest_run_dir / "logs" / f"rank-{r}.log"
        assert log.read_text() == "step 0\nstep 1\nstep 2\n"


def test_checkpoints_are_at_the_driver(four: Trainer) -> None:
    """Also large ones, and files; a later run has them on both hosts."""
    np = pytest.importorskip("numpy")

    def save() -> None:
        import numpy
        weights = numpy.arange(2_000_000, dtype=numpy.float64) * (1 + sgd.world_rank())
        sgd.save_checkpoint(epoch=1, weights=weights)
        sgd.report(epoch=1)
        sgd.save_checkpoint({"note": "hello"}, files=True)

    def load() -> Any:
        state = sgd.load_checkpoint()
        return state["epoch"], float(state["weights"].sum())

    four.run(save, checkpoint_strategy=sgd.CheckpointStrategy(num_to_keep=None))
    assert four.get_last_checkpoint()["note"] == "hello"
    assert four.latest_checkpoint_dir is not None
    first, last = sorted(p.parent for p in four.latest_checkpoint_dir.glob("*/manifest.json"))
    assert any(p.name.startswith("note") for p in last.rglob("*"))
    total = float(np.arange(2_000_000, dtype=np.float64).sum())
    assert four.run(load, checkpoint=first) == [(1, total)] * 4


class Unlucky(Exception):
    """Of this module alone."""


def test_an_exception_keeps_type_and_frames(four: Trainer) -> None:
    def deeper(n: int) -> None:
        raise Unlucky(f"number {n}")

    def train() -> None:
        if sgd.world_rank() == 3:
            deeper(13)
        while True:
            sgd.heartbeat()
            manta._manta.check()
            time.sleep(0.001)

    with pytest.raises(Unlucky, match="number 13") as caught:
        four.run(train)
    assert caught.value.rank == 3  # type: ignore[attr-defined]
    assert [f.name for f in caught.traceback][-2:] == ["train", "deeper"]


def counting(place: str, die: Callable[[], None], steps: int = 60) -> tuple[int, int]:
    """Counts to `steps`; rank 3 dies on its way, once, when there is something to go on from."""
    state = sgd.load_checkpoint() or {"step": 0}
    first = not os.path.exists(f"{place}/fired")
    victim = first and sgd.world_rank() == 3
    for step in range(state["step"] + 1, steps + 1):
        while first and not victim and step == 45:  # not at the end before the loss is known
            manta._manta.check()
            time.sleep(0.001)
        if victim and step == 30:
            while not os.path.exists(f"{place}/saved"):
                time.sleep(0.001)
            Path(place, "fired").touch()
            die()
        sgd.report(step=step)
        sgd.save_checkpoint(step=step)
        time.sleep(0.001)
    return state["step"], os.getpid()


class Watch(sgd.SGDCallback):
    """Tells when a checkpoint is at the driver's, and notes rewinds."""
    raise_errors = True

    def __init__(self, trainer: Trainer, place: Path):
        self.trainer = trainer
        self.place = place
        self.rewinds: list[int] = []

    def handle_result(self, results: Any, **info: Any) -> None:
        if info.get("rewound_to") is not None:
            self.rewinds.append(info["rewound_to"])
        if results[0]["step"] == 20 and not self.rewinds:
            by, where = time.monotonic() + 30, self.trainer.latest_checkpoint_dir
            while not where or not any(where.glob("*/manifest.json")):
                assert time.monotonic() < by, "nothing was saved"
                time.sleep(0.005)
            (self.place / "saved").touch()


def lose(four: Trainer, place: Path, die: Callable[[], None]) -> list[bool]:
    """A run in which rank 3 dies; which ranks have kept their process."""
    before = four.execute(os.getpid)
    watch, at = Watch(four, place), str(place)
    results = four.run(lambda: counting(at, die), callbacks=[watch])
    assert (place / "fired").exists()
    (rewound,) = watch.rewinds
    assert [first for first, _ in results] == [rewound] * 4 and rewound > 0
    return [now == was for (_, now), was in zip(results, before)]


def test_a_killed_worker_is_revived(four: Trainer, tmp_path: Path) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
    assert lose(four, tmp_path, die) == [False] * 4


def test_survivors_keep_their_process_if_asked(tmp_path: Path) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
    hosts = [Host("a", 2, AGENT), Host("b", 2, AGENT)]
    with Trainer(backend=None, num_workers=(4, 4), hosts=hosts, logdir=tmp_path / "runs",
                 keep_workers=True, quiet=True) as four:
        assert lose(four, tmp_path, die) == [True, True, True, False]


def agent_above() -> int:
    """Of this worker: whatever is forked from has it as its parent."""
    zygote = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(zygote.rpartition(")")[2].split()[1])


def test_a_lost_host_comes_back(four: Trainer, tmp_path: Path) -> None:
    def die() -> None:
        os.kill(agent_above(), signal.SIGKILL)
        time.sleep(60)
    assert lose(four, tmp_path, die) == [False] * 4


def test_the_next_trainer_finds_all_imported(four: Trainer) -> None:
    hosts = [Host("b", 1, AGENT)]
    with Trainer(backend=None, hosts=hosts) as first:
        zygote = first.execute(os.getppid)
    del first
    with Trainer(backend=None, hosts=hosts) as second:
        assert second.execute(os.getppid) == zygote


def test_hosts_may_come_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_HOSTS", f"here 1; there@lo 1 {AGENT}")
    monkeypatch.setenv("MANTA_DETAILED_METRICS", "1")
    with Trainer(backend=None, num_workers=2) as trainer:
        rows = list(trainer.run_generator(lambda: sgd.report(at=manta._manta.own_address())))
    assert rows[0][1]["at"] == ["127.0.0.1", "lo"] and rows[0][1]["_node_ip"] == "127.0.0.1"
    assert rows[0][0]["_node_ip"] == rows[0][0]["at"][0]


def test_a_run_is_restored_with_its_hosts(tmp_path: Path) -> None:
    hosts = [Host("a", 1, AGENT, "lo"), Host("b", 1, AGENT)]
    with Trainer(backend=None, num_workers=2, hosts=hosts, host_timeout=9, logdir=tmp_path) as t:
        t.run(sgd.node_rank)
        directory = t.latest_run_dir
    assert directory is not None
    record = json.loads((directory / "trainer.json").read_text())
    assert [Host(*h) for h in record["hosts"]] == hosts and record["host_timeout"] == 9
    with Trainer.restore(directory) as again:
        assert again.run(sgd.node_rank) == [0, 1]


@pytest.mark.parametrize("hosts, error", [
    ("a", TypeError), ([], ValueError), (Host("a"), TypeError), ([Host("")], ValueError),
    ([Host("a", 1.5)], TypeError), ([Host("a", 1, 7)], TypeError),  # type: ignore[arg-type]
    (["a"], TypeError), ([Host("a", -1)], ValueError), ([Host("a", 1, " ")], ValueError),
    ([Host("a", 1, AGENT), Host("a", 2, AGENT)], ValueError)])
def test_wrong_hosts_are_refused(hosts: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="(?i)host"):
        Trainer(backend=None, hosts=hosts)


def test_a_command_that_leads_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hosts = [Host("a", 1, AGENT), Host("b", 1, "printf 'no route' >&2; echo ' to b' >&2; exit 255")]
    with Trainer(backend=None, num_workers=2, hosts=hosts, logdir=tmp_path) as t:
        with pytest.raises(manta.Error, match="host b: its command ended") as caught:
            t.run(lambda: 1)
    assert "exit code 255" in str(caught.value) and "no route to b" in str(caught.value)
    assert "[b] no route to b\n" in capfd.readouterr().err


def test_a_host_without_the_package_says_so(tmp_path: Path) -> None:
    argv, _ = driver.program("none")
    home = str(Path(manta.__file__).absolute().parent.parent)
    code = argv[argv.index("-c") + 1].replace(home, str(tmp_path))
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code, "none"], capture_output=True,
                          text=True, timeout=30)
    assert said.returncode == 1
    assert "manta: not installed" in said.stderr and str(tmp_path) in said.stderr


def test_another_cpu_is_looked_at(four: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a worker needs the cure for AMX is not the driver's to say."""
    def look(cpus: list[str]) -> list[str | None]:
        from manta._runtime import worker
        found = []
        for cpu in cpus:
            os.environ["MANTA_AMX"] = cpu
            os.environ.pop("ONEDNN_MAX_CPU_ISA", None)
            worker.cure_amx()
            found.append(os.environ.get("ONEDNN_MAX_CPU_ISA"))
        return found

    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for found in four.run(functools.partial(look, ["none", "ok", "trap"])):
        assert found == [None, None, "AVX512_CORE_FP16"]


# --- two hosts with a network ---------------------------------------------------------------------


class Net:
    """Two hosts with two cables between them: 10.77.0.x first, 10.78.0.x is the other."""

    def __init__(self) -> None:
        self.spaces = [f"manta-py-{c}-{os.getpid()}" for c in "ab"]
        self.faces = [[f"mp{os.getpid()}{c}{i}" for i in range(2)] for c in "ab"]

    def up(self) -> None:
        for space in self.spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for i in range(2):
            ip("link", "add", self.faces[0][i], "type", "veth", "peer", "name", self.faces[1][i])
            for h, space in enumerate(self.spaces):
                face = self.faces[h][i]
                ip("link", "set", face, "netns", space)
                ip("-n", space, "addr", "add", f"10.7{7 + i}.0.{h + 1}/24", "dev", face)
                ip("-n", space, "link", "set", face, "up")

    def down(self) -> None:
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def command(self, h: int, before: str = "true") -> str:
        """Its name is one that nobody can resolve."""
        inside = f"hostname host{'ab'[h]} && {before} && {AGENT}"
        return f"exec ip netns exec {self.spaces[h]} unshare -um sh -c '{inside}'"

    def hosts(self, slots: int = 1, cable: int | None = None) -> list[Host]:
        return [Host("ab"[h], slots, self.command(h),
                     None if cable is None else self.faces[h][cable]) for h in range(2)]

    def bytes_over(self, cable: int) -> int:
        """That host a has sent."""
        said = subprocess.run(["ip", "-n", self.spaces[0], "-s", "-j", "link", "show",
                               self.faces[0][cable]], capture_output=True, text=True, check=True)
        return int(json.loads(said.stdout)[0]["stats64"]["tx"]["bytes"])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, and the commands ip and unshare")
    made = Net()
    try:
        try:
            made.up()
        except subprocess.CalledProcessError as e:
            pytest.skip(f"no network namespaces: {e.stderr.decode().strip()}")
        yield made
    finally:
        made.down()


def test_a_directory_that_is_not_there(net: Net, tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "of" / "driver"
    there.mkdir(parents=True)
    monkeypatch.chdir(there)
    hidden = net.command(1, f"mount -t tmpfs none {there.parent}")
    with Trainer(backend=None, num_workers=2, hosts=[Host("a", 1, AGENT), Host("b", 1, hidden)],
                 logdir=tmp_path) as t:
        with pytest.raises(OSError, match=f"{there}, on host b: No such file"):
            t.run(lambda: 1)


def test_where_ssh_came_in_is_the_network(net: Net) -> None:
    """The other host is the driver's, say, which nobody came to: it takes the way there."""
    ssh = "export SSH_CONNECTION=\"10.78.0.1 4711 10.78.0.2 22\""
    hosts = [net.hosts()[0], Host("b", 1, net.command(1, ssh))]
    with Trainer(backend=None, num_workers=2, hosts=hosts) as t:
        found = t.execute(lambda: manta._manta.own_address())
    assert found == [(f"10.78.0.{h + 1}", net.faces[h][1]) for h in range(2)]


# --- torch.distributed over it --------------------------------------------------------------------


def fit(config: dict[str, Any]) -> bytes:
    """A small model after 20 steps of DDP, from its checkpoint if there is one. With a `place` for
    its trace, rank 1 dies on the way, once."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(1)  # two ranks on one host have one each, two hosts have all
    torch.manual_seed(7)
    x = torch.randn(40, 12)[sgd.world_rank()::sgd.world_size()]
    net = torch.nn.Sequential(torch.nn.Linear(12, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
    die = "place" in config and not os.path.exists(f"{config['place']}/fired")
    step = 0
    if state := sgd.load_checkpoint():
        net.load_state_dict(state["net"])
        step = state["step"]
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while step < 20:
        if step == 11 and sgd.world_rank() == 1 and die:
            Path(config["place"], "fired").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        step += 1
        sgd.report(step=step)
        sgd.save_checkpoint(step=step, net=net.state_dict())
    return b"".join(p.detach().numpy().tobytes() for p in net.parameters())


class Apart:
    """Trainers of two ranks each on one and on two of the hosts, whose agents they share."""

    def __init__(self, net: Net):
        self.net = net
        self.trainers: dict[Any, Trainer] = {}

    def __call__(self, backend: str, hosts: int = 2, cable: int | None = None) -> Trainer:
        key = backend, hosts, cable
        if key not in self.trainers:
            where = self.net.hosts(1, cable) if hosts == 2 else self.net.hosts(2)[:1]
            self.trainers[key] = Trainer(sgd.TorchConfig(backend=backend), num_workers=(2, 2),
                                         hosts=where, quiet=True)
        return self.trainers[key]


@pytest.fixture(scope="module")
def apart(net: Net) -> Iterator[Apart]:
    pytest.importorskip("torch", reason="torch is not installed")
    trainers = Apart(net)
    yield trainers
    for t in trainers.trainers.values():
        t.shutdown()


@pytest.fixture(scope="module")
def over_ucx(apart: Apart) -> Apart:
    """Whatever the backend, the ranks meet over UCX."""
    try:
        apart("manta").run(lambda: None)
    except manta.Error as e:
        if "libmanta-ucx" in str(e):
            pytest.skip(str(e).splitlines()[0])
        raise
    return apart


@pytest.fixture(scope="module")
def one_host(over_ucx: Apart) -> bytes:
    """What both ranks of one host have after their training."""
    first, second = over_ucx("manta", hosts=1).run(fit)
    assert first == second
    return bytes(first)


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_two_hosts_give_the_bits_of_one(over_ucx: Apart, one_host: bytes, backend: str) -> None:
    assert over_ucx(backend).run(fit) == [one_host, one_host]


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_a_far_rank_is_revived(over_ucx: Apart, one_host: bytes, backend: str,
                               tmp_path: Path) -> None:
    place = {"place": str(tmp_path)}
    assert over_ucx(backend).run(fit, config=place) == [one_host, one_host]
    assert (tmp_path / "fired").exists()


def rendezvous() -> dict[str, Any]:
    import socket

    import torch.distributed as dist
    store = dist.distributed_c10d._get_default_store()
    store.set(f"from {dist.get_rank()}", socket.gethostname())
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {socket.inet_ntoa(bytes.fromhex(r[1][:8])[::-1]) for r in rows if r[3] == "0A"}
    known = [store.get(f"from {r}").decode() for r in range(2)]
    dist.barrier()
    return {"known": known, "master": os.environ["MASTER_ADDR"], "listening": listening,
            "gloo": os.environ["GLOO_SOCKET_IFNAME"], "backend": dist.get_backend()}


def test_ranks_meet_at_the_address_of_the_network(over_ucx: Apart) -> None:
    """No name is resolved, and nothing listens elsewhere."""
    for rank, said in enumerate(over_ucx("manta").run(rendezvous)):
        assert said["known"] == ["hosta", "hostb"] and said["master"] == "10.77.0.1"
        assert said["listening"] <= {f"10.77.0.{rank + 1}"}
        assert said["gloo"] == over_ucx.net.faces[rank][0] and said["backend"] == "manta"


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_of_several_networks_the_named_one_is_used(over_ucx: Apart, one_host: bytes,
                                                   backend: str) -> None:
    trainer, net = over_ucx(backend, cable=1), over_ucx.net
    before = [net.bytes_over(i) for i in range(2)]
    assert trainer.run(fit) == [one_host, one_host]
    sent = [net.bytes_over(i) - before[i] for i in range(2)]
    assert sent[1] > 20 * 4 * 4000 and sent[0] < 20_000
    said = trainer.run(rendezvous)
    assert {s["master"] for s in said} == {"10.78.0.1"}
    assert [s["gloo"] for s in said] == [net.faces[h][1] for h in range(2)]


def test_an_interface_of_the_users_choice_stands(over_ucx: Apart,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert {s["gloo"] for s in over_ucx("manta").run(rendezvous)} == {"lo"}


def test_other_calls_go_between_hosts(over_ucx: Apart) -> None:
    def call() -> tuple[Any, ...]:
        import torch
        import torch.distributed as dist
        rank = dist.get_rank()
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        x = torch.full((100_000,), rank)
        if rank == 0:
            dist.send(torch.arange(100_000), 1)
        else:
            dist.recv(x, 0)
        pair, own = dist.new_group([0, 1]), [dist.new_group([r]) for r in range(2)]
        y = torch.ones(3)
        dist.all_reduce(y, group=pair)
        dist.all_reduce(y, group=own[rank])
        parts = [torch.zeros(2), torch.zeros(2)]
        dist.all_to_all(parts, [torch.full((2,), 10. * rank + r) for r in range(2)])
        return objects, int(x.sum()), y.tolist(), [p.tolist() for p in parts]

    both = [{"rank": 0}, {"rank": 1}]
    assert over_ucx("manta").run(call) == [
        (both, 0, [2.0] * 3, [[0.0, 0.0], [10.0, 10.0]]),
        (both, 4999950000, [2.0] * 3, [[1.0, 1.0], [11.0, 11.0]])]


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_the_first_error_is_the_one_that_is_seen(over_ucx: Apart, backend: str) -> None:
    """Not the one that it leads to on the other host."""
    def fail() -> None:
        import torch
        import torch.distributed as dist
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1:
            raise KeyError("on purpose")
        dist.all_reduce(torch.ones(1))

    for call in (over_ucx(backend).run, over_ucx(backend).execute):
        with pytest.raises(KeyError, match="on purpose"):
            call(fail)


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_calls_between_runs_share_a_group(over_ucx: Apart, backend: str) -> None:
    def add(n: int) -> tuple[Any, ...]:
        import torch
        import torch.distributed as dist
        x = torch.tensor([float(n)])
        dist.all_reduce(x)
        return x.item(), os.environ["MASTER_PORT"], os.environ["GLOO_SOCKET_IFNAME"]

    trainer, faces = over_ucx(backend), over_ucx.net.faces
    first, second = trainer.execute(add, 3), trainer.execute(add, 5)
    assert [r[0] for r in first + second] == [6.0, 6.0, 10.0, 10.0]
    assert len({r[1] for r in first + second}) == 1  # the very same
    assert [r[2] for r in second] == [faces[0][0], faces[1][0]]


def test_an_address_that_no_interface_has(over_ucx: Apart) -> None:
    hosts = [over_ucx.net.hosts()[0], over_ucx.net.hosts()[1]._replace(address="10.9.9.9")]
    with Trainer(sgd.TorchConfig(), num_workers=2, hosts=hosts, quiet=True) as t:
        with pytest.raises(FileNotFoundError, match="host b: no network interface.*10.9.9.9"):
            t.run(lambda: 1)
