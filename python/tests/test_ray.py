# SPDX-License-Identifier: Apache-2.0
"""manta by the name ray: in scripts, workers, spawned processes and notebooks; what it has, and
what it says of the rest. docs/from-ray.md lists the names."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

import manta
from manta import _aliases, _command
from manta.compat.ray import PATH, core, exceptions, names

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from-ray.md"
RAY = ["-m", "manta.compat.ray"]


def _targets() -> list[str]:
    """All modules by whose paths programs import manta."""
    found = [*_aliases.OLDER, "manta.data", *(f"manta.{front}" for front in manta._FRONTS)]
    for front in manta._FRONTS:
        folder = importlib.import_module(f"manta.{front}").__path__
        found += [m.name for m in pkgutil.walk_packages(folder, f"manta.{front}.")
                  if "._" not in m.name]
    return found


TARGETS = _targets()


def run(*words: str | Path, code: int = 0, **options: Any) -> str:
    """What Python prints; what it says if it is to fail."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=50,
                          stdin=subprocess.DEVNULL, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def script(tmp_path: Path, text: str, name: str = "script.py") -> Path:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Ray that is installed."""
    folder = tmp_path / "site" / "ray"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("__version__ = 'real'\n")
    (folder / "train.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    return folder


# --- what is found --------------------------------------------------------------------------------


def test_paths_lead_to_the_very_same_modules() -> None:
    absent = () if importlib.util.find_spec("tensorflow") else (
        "manta.air.integrations.keras", "manta.train.tensorflow.keras")
    paths = [p for p in TARGETS if p not in ("manta.util", *absent)]
    code = "import importlib, sys\n" + "\n".join(
        f"import ray{p[5:]}; assert ray{p[5:]} is importlib.import_module({p!r})" for p in paths)
    code += "".join(f"\nimport {p}; assert sys.modules[{p!r}] is sys.modules[{other!r}]"
                    for p, other in names.OTHER.items() if importlib.util.find_spec(other))
    run("-c", f"import manta.compat.ray as c; c.install()\n{code}")
    assert run("-c", "import manta.compat.ray as c, sys; c.install(); import ray.train, ray.sgd;"
                     "from ray.util.sgd.v2 import Trainer; import manta; from manta import sgd;"
                     "print(Trainer is sgd.Trainer is ray.train.Trainer, ray.train is manta.train,"
                     "'torch' in sys.modules)") == "True True False\n"


def test_only_the_explicit_ways_hide_a_real_one(real: Path, tmp_path: Path) -> None:
    path = script(tmp_path, "import ray\nprint(ray.__version__)\n")
    assert run(path) == "real\n"
    assert run("-c", "import manta, manta.sgd, manta.compat.ray, ray; print(ray.__version__)"
               ) == "real\n"
    assert run(*RAY, path) == f"{core.__version__}\n"
    assert run("-c", "import manta.compat.ray as c; c.install(); import ray.train, manta;"
                     "print(ray.train is manta.train)") == "True\n"
    said = run("-c", "import ray, manta.compat.ray as c; c.install()", code=1)
    assert "ray was imported before manta.compat.ray.install()\nhint: " in said


def test_who_only_looks() -> None:
    code = ("import importlib.util as u, manta.compat.ray as c; c.install(); c.install()\n"
            "import sys; assert sys.path.count(c.PATH) == 1\n"
            "assert u.find_spec('ray') and u.find_spec('ray.train') and u.find_spec('ray.sgd')\n"
            "assert u.find_spec('ray.serve') is u.find_spec('ray._private') is None\n"
            "import ray; assert not hasattr(ray, 'remote') and not hasattr(ray, 'serve')\n"
            "assert ray.__all__ == [n for n in dir(ray) if n[0] != '_'], dir(ray)\n"
            "assert all(hasattr(ray, n) for n in ray.__all__)\n"
            "import pickle; assert pickle.loads(pickle.dumps(ray)) is ray\n")
    run("-c", code)


def test_the_version_is_one_that_programs_can_compare() -> None:
    assert re.fullmatch(r"2\.\d+\.\d+", core.__version__) and manta.__version__ in core.__commit__


# --- what is said of the rest ---------------------------------------------------------------------


@pytest.mark.parametrize("statement, said", [
    ("import ray; ray.remote", "ray.remote is not in this version of manta\nhint: manta trains "),
    ("import ray\n@ray.remote\ndef f(): pass", "has no tasks or actors"),
    ("from ray import remote", "ray.remote is not in this version of manta\nhint: manta trains"),
    ("import ray; ray.kill", "ray.kill is not in this version"),
    ("import ray; ray.initt", r"ray.initt is not .*\nhint: ray has 'init'"),
    ("import ray; ray.serve", "ray.serve is not .*\nhint: it is not a part of manta"),
    ("from ray.rllib import agents", "ray.rllib is not .*\nhint: it is not a part of manta"),
    ("import ray.job_submission", "ray.job_submission is not .*\nhint: manta has the training"),
    ("import ray._private.services", "ray._private is not in this version of manta"),
    ("import ray; ray.util.placement_group", "ray.util.placement_group is not in this version"),
    ("from ray.util.queue import Queue", "ray.util.queue is not in this version"),
    ("from ray.exceptions import RayTaskErr", r"hint: .*'RayTaskError'"),
    ("from ray.sgd import nothing", "cannot import name 'nothing'"),
    ("import ray.sgd; ray.sgd.Trainr", "hint: it has 'Trainer'"),
])
def test_what_is_not_here_is_told(statement: str, said: str) -> None:
    error = run("-c", f"import manta.compat.ray as c; c.install()\n{statement}", code=1)
    assert re.search(said, error), error


# --- scripts --------------------------------------------------------------------------------------

SHOW = """
import sys, os, json
import beside
if __name__ == "__main__":
    main = sys.modules["__main__"]
    assert main.__dict__ is globals() and __builtins__ and "manta" not in (__package__ or "")
    print(json.dumps([sys.argv, __file__, __spec__ and __spec__.name, sys.path[0], beside.X]))
"""


def test_a_script_is_run_as_python_runs_it(tmp_path: Path) -> None:
    """With and without manta: the same arguments, file and first path."""
    script(tmp_path, "X = 5\n", "folder/beside.py")
    path = script(tmp_path, SHOW, "folder/script.py")
    script(tmp_path, SHOW, "folder/__main__.py")
    folder = path.parent
    archive = tmp_path / "program.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("__main__.py", SHOW)
        packed.writestr("beside.py", "X = 6\n")
    for words in ([path, "-a", "b c"], ["folder/script.py"], [folder, "x"], [archive, "y"]):
        plain = run(*words, cwd=tmp_path)
        assert run(*RAY, *words, cwd=tmp_path) == plain, words
    for words in (["-m", "script", "--x"], ["-m", "folder"]):
        where = folder if words[1] == "script" else tmp_path
        env = {**os.environ, "PYTHONPATH": str(folder)}
        assert run(*RAY, *words, cwd=where, env=env) == run(*words, cwd=where, env=env), words


def test_its_end_is_the_scripts(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys, atexit\nx = 3\natexit.register(lambda: print(x))\n"
                            "sys.exit(int(sys.argv[1]))\n")
    run(*RAY, path, "7", code=7)
    assert run(*RAY, path, "0") == "3\n"
    path = script(tmp_path, "def f():\n    1 / 0\nf()\n")
    assert run(*RAY, path, code=1) == run(path, code=1)
    assert "SyntaxError" in run(*RAY, script(tmp_path, "def\n"), code=1)
    assert "No module named nothing" in run(*RAY, "-m", "nothing", code=1)
    assert run(*RAY, "nothing.py", code=2) == (
        "manta.compat.ray: cannot open nothing.py: there is no such file\n")
    assert "is not a Python program" in run(*RAY, "true", code=1)
    assert "-m needs the name of a module" in run(*RAY, "-m", code=1)
    assert "python -m manta.compat.ray [-m module | script]" in run(*RAY, "--help")


def test_a_command_of_the_path(tmp_path: Path) -> None:
    command = script(tmp_path, f"#!{sys.executable}\nimport ray, sys\nprint(sys.argv)\n", "tool")
    command.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run(*RAY, "tool", "a", env=env) == f"{[str(command), 'a']}\n"


def test_the_command_manta(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys, ray\nprint(ray.__version__, sys.argv[1:])\n")
    path.chmod(0o755)  # with --ray the interpreter runs it all the same
    env = {**os.environ, "MANTA_PYTHON": sys.executable}
    for words in ([path, "-x"], ["--", "-m", "script", "-x"]):
        done = subprocess.run([_command.path(), "run", "--ray", *words], env=env, timeout=50,
                              cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{core.__version__} ['-x']\n"), done


# --- processes ------------------------------------------------------------------------------------

WORKERS = """
import multiprocessing, os, pickle, subprocess, sys
import ray
import ray.util.sgd.v2 as v2
from ray import sgd, train
from ray.train import Trainer

class Told(ray.util.sgd.callbacks.SGDCallback):
    def handle_result(self, results, **info):
        print("told", len(results))

def reach():
    import ray.util.sgd
    from ray.exceptions import RayActorError
    return ray.__version__ + ray.util.sgd.Trainer.__name__ + RayActorError.__name__

def by_name(name):
    return pickle.loads(b"c" + name.encode() + b"\\nTrainer\\n.")

def train_func(config):
    import importlib
    assert reach().endswith("TrainerWorkerLost") and by_name("ray.sgd") is sgd.Trainer
    assert importlib.import_module(config["module"]) is v2 and config["class"] is Trainer
    ray.sgd.report(rank=train.world_rank())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(reach) == reach()
    return ray.get(config["ref"])["a"] + v2.world_rank(), ray.get_gpu_ids()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(reach) == reach() and pool.apply(by_name, ["ray.train"]) is Trainer
    code = "import ray, manta; print(ray.train is manta.train)"
    print(subprocess.run([sys.executable, "-c", code], text=True, capture_output=True).stdout)
    ref = ray.put({"a": 40})
    with Trainer(None, num_workers=2, callbacks=[Told()]) as trainer:
        print(trainer.run(train_func, {"module": "ray.util.sgd.v2", "class": Trainer, "ref": ref}))
"""


@pytest.mark.parametrize("way", [["script.py"], ["-m", "script"]])
def test_workers_and_spawned_processes_have_the_same_ray(tmp_path: Path, real: Path,
                                                         way: list[str]) -> None:
    script(tmp_path, WORKERS)
    assert run(*RAY, *way, cwd=tmp_path) == "True\n\ntold 2\n[(40, []), (41, [])]\n"


def test_a_module_of_the_program_imports_ray(tmp_path: Path) -> None:
    script(tmp_path, "import ray.train\nfrom ray import sgd\n\n"
                     "def train_func():\n    return ray.train.world_size(), sgd.world_rank()\n",
           "library.py")
    path = script(tmp_path, "import library\nfrom ray.sgd import Trainer\n"
                            "print(Trainer(None, num_workers=2).run(library.train_func))\n")
    assert run(*RAY, path) == "[(2, 0), (2, 1)]\n"


def test_a_notebook(tmp_path: Path) -> None:
    """Where install() is called, and the process has no command line of ours."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    import nbclient
    import nbformat
    cells = ["import manta.compat.ray\nmanta.compat.ray.install()",
             "import ray\nfrom ray import train\nfrom ray.train import Trainer\n"
             "def f():\n    import ray.sgd\n    return ray.sgd.world_rank(), train.world_size()",
             "print(Trainer(None, num_workers=2).run(f), ray.is_initialized())\nray.shutdown()"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbclient.NotebookClient(book, timeout=50).execute()
    assert book.cells[-1].outputs[0]["text"] == "[(0, 2), (1, 2)] True\n"


def test_a_run_is_resumed_by_the_same_way(tmp_path: Path) -> None:
    path = script(tmp_path, "from ray.sgd import Trainer\n"
                            "t = Trainer(None, num_workers=1, logdir='runs')\n"
                            "t.run(lambda: 1)\nprint(t.latest_run_dir)\n")
    where = Path(run(*RAY, path, cwd=tmp_path).strip())
    said = json.loads(subprocess.run([_command.path(), "status", "--json", where], check=True,
                                     capture_output=True, text=True).stdout)
    assert said and where.name.startswith("script_")
    assert b"manta.compat.ray" in (where / "run.log").read_bytes()


# --- init, put and get ----------------------------------------------------------------------------


def test_init_takes_what_programs_give_it() -> None:
    run("-W", "error", "-c", """
import logging
import manta.compat.ray as c; c.install()
import ray
assert not ray.is_initialized()
info = ray.init(address="", num_cpus=3, num_gpus=2, resources={"disk": 4},
                ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR,
                include_dashboard=False, object_store_memory=10**8, _temp_dir="x")
assert ray.is_initialized() and info.address_info["node_ip_address"]
assert info["node_ip_address"] == ray.util.get_node_ip_address()
total = ray.cluster_resources()
assert (total["CPU"], total["GPU"], total["disk"]) == (3, 2, 4) and total["memory"] > 1e6
assert ray.available_resources() == total
node, = ray.nodes()
assert node["Alive"] and node["Resources"] == total
with ray.sgd.Trainer(None, num_workers=2, resources_per_worker={"disk": 2}) as t:
    t.start()
    t.execute(int)
    left = ray.available_resources()
    assert left["CPU"] == 1 and "disk" not in left and left["GPU"] == 2, left
assert ray.available_resources() == total
ray.shutdown()
assert not ray.is_initialized() and "disk" not in ray.cluster_resources()
with ray.init(num_cpus=1):
    assert ray.cluster_resources()["CPU"] == 1
assert not ray.is_initialized()
for wrong in ({"num_cpu": 1}, {"address": "ray://head:10001"}):
    try:
        ray.init(**wrong)
    except (TypeError, ValueError) as e:
        assert "hint: " in str(e)
    else:
        raise AssertionError(wrong)
""")


def test_init_warns_of_what_would_change_the_program() -> None:
    said = run("-W", "error", "-c", "import manta.compat.ray as c; c.install(); import ray\n"
               "ray.init(runtime_env={'pip': ['x']})", code=1)
    assert "manta.init() ignores runtime_env" in said


def test_objects_by_reference() -> None:
    value: dict[str, Any] = {"a": [1, 2]}
    ref, other = manta.put(value), manta.put(7)
    assert manta.get(ref) is value and manta.get([ref, other]) == [value, 7]
    assert ref == ref and ref != other and len({ref, ref, other}) == 2 and ref.hex() in repr(ref)
    import pickle
    again = pickle.loads(pickle.dumps([ref, ref]))
    assert again == [ref, ref] and manta.get(again[0]) is value
    assert manta.wait([ref, other]) == ([ref], [other])
    assert manta.wait([ref, other], num_returns=2, timeout=0) == ([ref, other], [])
    for wrong in (lambda: manta.get(3), lambda: manta.get([ref, 3]), lambda: manta.put(ref),
                  lambda: manta.wait(ref), lambda: manta.wait([ref, 3])):
        with pytest.raises(TypeError, match="put|reference"):
            wrong()
    with pytest.raises(ValueError, match="num_returns"):
        manta.wait([ref], num_returns=2)


def test_a_reference_travels_with_its_object() -> None:
    """To workers and back: home is where the object is."""
    value = {"a": bytes(100_000)}
    ref = manta.put(value)

    def train(config: dict[str, Any]) -> Any:
        here = manta.get(config["refs"])
        assert here[0] is here[1] is manta.get(ref) and len(here[0]["a"]) == 100_000
        return ref, manta.put([1])
    with manta.sgd.Trainer(None, num_workers=2, quiet=True) as trainer:
        (first, made), _ = trainer.run(train, {"refs": [ref, ref]})
    assert first == ref and manta.get(first) is value and manta.get(made) == [1]


def test_an_object_nobody_refers_to_is_gone() -> None:
    import gc
    import weakref

    class Thing:
        pass
    thing = Thing()
    seen, ref = weakref.ref(thing), manta.put(thing)
    del thing
    gc.collect()
    assert seen() is manta.get(ref)
    del ref
    gc.collect()
    assert seen() is None


# --- exceptions -----------------------------------------------------------------------------------


def test_a_lost_worker_is_caught_by_its_name_in_ray() -> None:
    def die() -> None:
        os.kill(os.getpid(), 9)
    with manta.sgd.Trainer(None, num_workers=1, max_retries=0, quiet=True) as trainer:
        for name in ("RayError", "RayActorError", "WorkerCrashedError", "ActorDiedError"):
            with pytest.raises(getattr(exceptions, name)):
                trainer.run(die)
        with pytest.raises(ZeroDivisionError):
            trainer.run(lambda: 1 / 0)


def test_exceptions_are_classes_below_those_of_ray() -> None:
    for name in exceptions.__all__:
        assert issubclass(getattr(exceptions, name), Exception), name
        assert name == "RayTaskError" or issubclass(getattr(exceptions, name), exceptions.RayError)
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)


# --- the page -------------------------------------------------------------------------------------


def listed() -> dict[str, list[str]]:
    """The names of the page by module; a row may be of several modules."""
    rows = re.findall(r"^\| (`ray\b[`\w., ]*) \| (.*?) \|$", PAGE.read_text().split("## Names")[1],
                      re.M)
    return {module: re.findall(r"`(\w+)`", cells) for modules, cells in rows
            for module in re.findall(r"`([\w.]+)`", modules)}


def modules() -> list[str]:
    """All modules that `import ray.…` finds, but those that wait."""
    return sorted({*names.OWN, "ray.exceptions", *("ray" + p[5:] for p in TARGETS)})


def own(module: ModuleType) -> set[str]:
    """What a module says that it has, or else defines, constants included."""
    return set(getattr(module, "__all__", ())) or {
        n for n, o in vars(module).items() if not n.startswith("_") and not isinstance(o, TypeVar)
        and (getattr(o, "__module__", "") in (module.__name__, "manta") or n.isupper())}


def offered(module: str) -> set[str]:
    """The names of a module, without the modules below it, which have rows of their own."""
    if module in names.OWN:
        found = set(names.public(module)) | {n for n in names.OWN[module]}
    else:
        path = names.target(module) or ""
        defines = _aliases.modules(path) if path in _aliases.ALIASES else [
            importlib.import_module(path)]
        late = {n for m in defines for n in {*dir(m)} - {*vars(m)} if not n.startswith("_")}
        found = late.union(*map(own, defines))
    return {n for n in found if f"{module}.{n}" not in modules()}


@pytest.mark.parametrize("module", modules())
def test_the_page_lists_every_name(module: str) -> None:
    try:
        found = offered(module)
    except ModuleNotFoundError as e:
        pytest.skip(f"{e.name} is not installed")
    assert set(listed().get(module, ())) == found


def test_every_name_of_the_page_is_there() -> None:
    rows = listed()
    assert set(rows) <= set(modules())
    code = "import importlib, json, sys, manta.compat.ray as c; c.install()\n" \
           "for m, names in json.load(open(sys.argv[1])).items():\n" \
           "    for n in names:\n" \
           "        try:\n            getattr(importlib.import_module(m), n)\n" \
           "        except ModuleNotFoundError as e:  # a framework that is not installed\n" \
           "            assert e.name == 'tensorflow', (m, n)\n"
    where = Path(os.environ["MANTA_RESULTS"]).parent / "names.json"
    where.write_text(json.dumps(rows))
    run("-c", code, where)


def test_the_example_of_the_page(tmp_path: Path) -> None:
    """The script, the two commands that run it, and what they print."""
    pytest.importorskip("torch", reason="torch is not installed")
    found = re.search(r"^```python[^\n]*\n(.*?)^```\n.*?^```sh\n(.*?)^```\n\n```text\n(.*?)^```",
                      PAGE.read_text(), re.M | re.S)
    assert found
    script(tmp_path, found[1], "train.py")
    done = subprocess.run(["bash", "-ec", found[2]], cwd=tmp_path, capture_output=True, text=True,
                          timeout=50, env={**os.environ, "MANTA_PYTHON": sys.executable,
                                           "PATH": f"{Path(sys.executable).parent}:"
                                                   f"{Path(_command.path()).parent}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (0, found[3]), done


def test_the_folder_of_children_is_in_the_package() -> None:
    assert Path(PATH, "ray", "__init__.py").is_file()
