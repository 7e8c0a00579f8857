# SPDX-License-Identifier: Apache-2.0
"""What a train function calls: `session` of the front air, and the functions of the front train.
Outside of a worker it is as in manta._front.session: reports go nowhere, the world is one rank."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from manta import _manta
from manta._front import session as _session
from manta._front.fit import files as _files
from manta._front.fit import parts
from manta._front.fit.checkpoint import (DIRECTORY, ID, PREPROCESSOR, TIMESTAMP, WHERE,
                                             Checkpoint)
from manta._front.fit.stop import is_reached, restart_clock

SHOULD_CHECKPOINT, DONE = "should_checkpoint", "done"  # in rank 0's row


@dataclass
class Facts:
    """What a run of fit() tells its workers; of a run of another trainer these are the defaults."""
    experiment: str = ""
    trial_id: str = ""
    trial: str = ""
    resources: dict[str, float] = field(default_factory=dict)
    stop: Any = None
    frequency: int = 0  # of checkpoints
    preprocessor: Any = None
    metadata: dict[str, Any] | None = None


facts = Facts()  # of the run that this process works for
_trial: Facts | None = None  # of the experiment's trial that this process works for
_next_id: tuple[Any, int] | None = None  # of the next checkpoint in a job


def enter(new: Facts) -> None:
    """A call of a train function begins."""
    global facts
    facts = new if _trial is None else replace(
        new, experiment=_trial.experiment, trial_id=_trial.trial_id, trial=_trial.trial,
        resources=new.resources or _trial.resources)
    restart_clock()


def leave() -> None:
    enter(Facts())
    parts.end()


def begin_trial(of: Facts) -> None:
    """While a trial of an experiment runs: what it is, whoever asks."""
    global facts, _trial
    facts = _trial = of
    restart_clock()


def end_trial() -> None:
    global _trial
    _trial = None
    leave()


# --- report ---------------------------------------------------------------------------------------


def report(metrics: dict[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """One row of metrics, and the checkpoint that belongs to it. Every rank reports equally often;
    rank 0's are the metrics and the checkpoint of the result. It does not wait for other ranks, but
    for one case: a checkpoint that is a directory has the files that any rank reports with it, and
    rank 0 waits until all of them are there."""
    if not isinstance(metrics, dict) or not all(isinstance(name, str) for name in metrics):
        raise TypeError(f"report takes a dict of metrics by name, not {metrics!r}\n"
                        f"hint: report({{\"loss\": 0.5}}, checkpoint=…)")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        hint = "Checkpoint.from_dict(…)" if isinstance(checkpoint, dict) else \
            "Checkpoint.from_directory(path)"
        raise TypeError(f"checkpoint must be a Checkpoint, not {type(checkpoint).__name__}\n"
                        f"hint: checkpoint={hint}")
    if not _manta.in_session():
        _session.outside("report")
        return
    if checkpoint is not None and facts.frequency > 1:
        checkpoint = None if (_manta.iteration() + 1) % facts.frequency else checkpoint
    _report(metrics, checkpoint)


def report_either(*args: Any, checkpoint: Any = None, **metrics: Any) -> None:
    """report({"loss": 0.5}, checkpoint=…), or report(loss=0.5): one row of metrics."""
    if args and metrics or len(args) > 1:
        raise TypeError("report takes a dict of metrics, or metrics by name\n"
                        "hint: report({\"loss\": 0.5}, checkpoint=…)")
    if not args and checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        metrics["checkpoint"], checkpoint = checkpoint, None
    report(args[0] if args else metrics, checkpoint=checkpoint)


def _report(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
    first = _manta.place()[0] == 0
    number = _number() if first and checkpoint is not None else 0
    place = None if checkpoint is None else _put(checkpoint)
    if facts.trial_id and not first:
        parts.arrive()
    elif facts.trial_id and place is not None:
        parts.await_others()
    row = dict(metrics)
    ends = False
    if first and facts.stop is not None:
        ends = row[DONE] = is_reached(facts.stop, facts.trial_id, row)
    if checkpoint is not None and _trial is not None:
        _manta.ahead(row)  # a trial may end with this row, and its checkpoint is there by then
        _keep(checkpoint, place, number)
        _manta.report(**row)
        return
    if first and checkpoint is not None:
        row[SHOULD_CHECKPOINT] = True  # the driver that ends the run here waits for it
    _manta.report(**row)
    if checkpoint is not None:
        _keep(checkpoint, place, number)
    while ends:  # until the driver has seen the row: nothing happens after it
        _manta.check()
        _manta.heartbeat()
        time.sleep(0.002)


def reserve() -> Path:
    """Before a report: where a directory that keep() is given after it would be."""
    return Path(_manta.directory())


def keep(files: Path, place: Path) -> None:
    """Saves a directory as the checkpoint of the report that was made last."""
    number = _number()
    _files.move(files, place)
    _keep(Checkpoint(place), place, number)


def _keep(checkpoint: Checkpoint, place: Path | None, number: int) -> None:
    """Saves a dict, or that there is a directory in its place."""
    if place is None:
        _save(checkpoint, number)
        return
    from manta._state import chance
    chance.save()
    _manta.save([], {"format": DIRECTORY, "directory": place.name, WHERE: str(place.parent),
                     ID: number})


def _save(checkpoint: Checkpoint, number: int) -> None:
    from manta import _state
    data = checkpoint.to_dict()
    if facts.metadata is not None:
        data["_metadata"] = {**facts.metadata, **data.get("_metadata", {})}
    for name in (TIMESTAMP, PREPROCESSOR, ID):  # behind the user's own
        data.pop(name, None)
    _state.save({**data, TIMESTAMP: 0, PREPROCESSOR: facts.preprocessor, ID: number},
                files=False, sharded=False)


def _put(checkpoint: Checkpoint) -> Path | None:
    """The directory of this rank to its place, with the metadata of the trainer; None: it is a
    dict."""
    if not checkpoint._is_users():
        return None
    place = parts.put(Path(checkpoint.path), checkpoint._move)
    if facts.metadata is not None:
        files = Checkpoint(place)
        files.set_metadata({**facts.metadata, **files.get_metadata()})
    return place


def _number() -> int:
    """Of the next checkpoint: from 0; a run that was given one begins with that one's number, and a
    revived one goes on."""
    global _next_id
    from manta._runtime import worker
    if _next_id is None or _next_id[0] is not worker.job:
        checkpoint, own = _found() or (None, False)
        number = checkpoint._number() if checkpoint is not None else None
        _next_id = worker.job, 0 if number is None else number + int(own)
    _, number = _next_id
    _next_id = worker.job, number + 1
    return number


# --- checkpoints ----------------------------------------------------------------------------------


def get_checkpoint() -> Checkpoint | None:
    """What was reported last, after a revival too; else what the trainer was given to resume from;
    else None."""
    if not _manta.in_session():
        _session.outside("get_checkpoint")
        return None
    found = _found()
    if found is not None and found[1]:
        from manta._state import chance
        chance.restore()
    return None if found is None else found[0]


def _found() -> tuple[Checkpoint, bool] | None:
    """And whether this run has saved it."""
    from manta._runtime import worker
    job = worker.job
    handle = _manta.load()
    if handle is not None:
        own = not handle.given()
        here = Path(_manta.run_dir(), "checkpoints")
        if own:
            return Checkpoint._of(handle, here, True), own
        trust = job is not None and job.trust
        if trust and _trial is not None:  # of another trial of the experiment
            return Checkpoint._of(handle, _taken_over(handle, here), trust), own
        return Checkpoint._made(handle=handle, trust=trust), own
    given = job.checkpoint if job is not None else None
    if given is None:
        return None
    if not isinstance(given, Checkpoint):
        given = Checkpoint.from_dict(given if isinstance(given, dict) else {"checkpoint": given})
    return given, False


def _taken_over(handle: _manta.Checkpoint, here: Path) -> Path:
    """Where a directory that another trial has saved is: in our own from now on, because that one
    goes on, and drops it when it has newer ones."""
    value = handle.value()
    if not isinstance(value, dict) or value.get("format") != DIRECTORY:
        return here
    theirs, name = Path(value[WHERE]), str(value["directory"])
    if (held := here.parent / ".taken" / name).is_dir():  # by the driver
        return held.parent
    mine = here.parent / f".taken-{_manta.place()[0]}"
    newer = sorted((p.name for p in theirs.glob("checkpoint_*")), reverse=True)
    for found in (name, *newer):
        shutil.rmtree(mine, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError, shutil.Error):  # the latter of its files
            _files.clone(theirs / found, mine / name)
            return mine
    raise FileNotFoundError(f"the other trial no longer has its checkpoint {theirs / name}")


# --- who am I -------------------------------------------------------------------------------------


def get_world_size() -> int:
    """How many workers there are."""
    return _session.world_size()


def get_world_rank() -> int:
    """This worker's number among all, from 0."""
    return _session.world_rank()


def get_local_rank() -> int:
    """This worker's number on its host, from 0."""
    return _session.local_rank()


def get_local_world_size() -> int:
    """How many workers there are on this host."""
    return _session.local_world_size()


def get_node_rank() -> int:
    """This host's number, from 0."""
    return _session.node_rank()


def _fact(value: Any, call: str) -> Any:
    if not _manta.in_session():
        _session.outside(call)
    return value or None


def get_experiment_name() -> str | None:
    """RunConfig(name=…)."""
    found: str | None = _fact(facts.experiment, "get_experiment_name")
    return found


def get_trial_id() -> str | None:
    """Of this run of fit()."""
    found: str | None = _fact(facts.trial_id, "get_trial_id")
    return found


def get_trial_name() -> str | None:
    """The trainer's name and the id."""
    found: str | None = _fact(facts.trial, "get_trial_name")
    return found


def get_trial_resources() -> dict[str, float] | None:
    """What all workers reserve together."""
    found: dict[str, float] | None = _fact(facts.resources, "get_trial_resources")
    return found


def get_trial_dir() -> str | None:
    """The run's directory."""
    found: str | None = _fact(_manta.in_session() and _manta.run_dir(), "get_trial_dir")
    return found


def get_metadata() -> dict[str, Any]:
    """`metadata` of the trainer."""
    return dict(_fact(facts.metadata, "get_metadata") or {})


class TrainContext:
    """The same as methods: get_context().get_world_rank()."""

    get_world_size = staticmethod(get_world_size)
    get_world_rank = staticmethod(get_world_rank)
    get_local_rank = staticmethod(get_local_rank)
    get_local_world_size = staticmethod(get_local_world_size)
    get_node_rank = staticmethod(get_node_rank)
    get_experiment_name = staticmethod(get_experiment_name)
    get_trial_id = staticmethod(get_trial_id)
    get_trial_name = staticmethod(get_trial_name)
    get_trial_resources = staticmethod(get_trial_resources)
    get_trial_dir = staticmethod(get_trial_dir)
    get_metadata = staticmethod(get_metadata)


def get_context() -> TrainContext:
    """Where this worker stands."""
    return TrainContext()
