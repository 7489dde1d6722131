"""Which devices a command uses, and how they are put to work: their peaks, and a pool with a judge on each.

Nothing falls back to the CPU in silence: what needs a GPU ends with the reason why there is none, and where
either would do, `describe` is printed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from swarm.device import ON_CPU, ON_GPU, Device, cpu_device, runs_on, why_no_gpu
from swarm.errors import BadInput, Refused
from swarm.judge import peaks as calibration
from swarm.layout import NAME, RunRoot
from swarm.locks import device_lock_path, held, is_alive, owner
from swarm.pool.local import LocalPool
from swarm.schema import suggest
from swarm.sol import Peaks

AUTO = "auto"
CALIBRATION_LOCK_S = 600.0
"""Another run on this host may be in the middle of a long measurement."""
GPU_MAKER = "nvidia-"
UUID_CHARS = 12
"""Of a GPU's UUID in a message: `GPU-303b186a`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured on, and the language whose seeds are measured."""

    devices: list[Device]
    """Empty if they are on another host."""
    device_model: str
    language: str
    remark: str
    """One line for whoever did not choose all of it."""

    @property
    def device(self) -> Device:
        """The first of them; or what is known of one that is elsewhere."""
        if self.devices:
            return self.devices[0]
        kind = "cuda" if runs_on(self.language, "cuda") else "cpu"
        return Device(kind, self.device_model, "", ())


def choose(name: str | None, language: str | None, seeds: Collection[str]) -> Choice:
    """Return devices and language; what is not said follows from the other, then from the `seeds` there are.

    With nothing said, a GPU that is here is used if there is a seed that runs on it.
    """
    name, language = _said(name), _known(language)
    remark, is_free = "", name is None and language is None
    if language is None:
        if name is not None:
            known = ON_CPU if chosen_devices(name)[0].kind == "cpu" else ON_GPU
        elif why_no_gpu():
            known = ON_CPU
        else:
            known = (*ON_GPU, *ON_CPU)
        language = next((one for one in known if one in seeds), known[0])
        if name is None and known != ON_CPU and not runs_on(language, "cuda"):
            remark = "; the GPU is not used: there is no seed for it"
    try:
        devices = chosen_devices(name, language)
    except Refused as error:
        if not is_free:
            raise
        raise Refused(error.what, remedy=f"{error.remedy}; --device cpu leaves the GPU alone") from None
    return Choice(devices, devices[0].model, language, f"{language} on {describe(devices)}{remark}")


def chosen_devices(name: str | None, language: str | None = None) -> list[Device]:
    """Return the devices that `--device` names, all of one model; None: those that the language runs on.

    `cpu`; `cuda`, all GPUs of the first one's model; `cuda:0,1`; UUIDs, or beginnings that fit one only.
    """
    name = _said(name)
    if name is None:
        return _fitting(language)
    devices = [cpu_device()] if name == "cpu" else _named(name)
    kind = devices[0].kind
    if language is not None and not runs_on(language, kind):
        other = "cpu" if kind == "cuda" else "cuda"
        raise BadInput(
            f"{language} does not run on {'a GPU' if kind == 'cuda' else 'the CPU'}",
            where=f"device {name}",
            remedy=f"give --device {other}",
        )
    return devices


def seeds_of(root: RunRoot, problems: Sequence[str] = ("*",)) -> set[str]:
    """Return the languages that some of `problems`, names or patterns, have a seed in."""
    return {folder.name for name in problems for folder in root.problems.glob(f"{name}/seed/*/")}


def device_model(text: str) -> str:
    """Return the slug of a device model that somebody named, in NVML's spelling or in ours."""
    from swarm.peaks_table import model_of

    model = model_of(text)
    if not NAME.fullmatch(model):
        raise BadInput(
            f"{text!r} is no device model", where="--device-model", remedy="name one, for example nvidia-h200"
        )
    return model


def choose_elsewhere(model: str, language: str | None, seeds: Collection[str]) -> Choice:
    """Return the choice of a run whose devices are on another host, reached by bundles."""
    language, model = _known(language), device_model(model)
    if language is None:
        language = next((one for one in ON_GPU if one in seeds), ON_GPU[0])
    if not runs_on(language, "cuda") and model.startswith(GPU_MAKER):
        raise BadInput(
            f"{language} does not run on a GPU", where="--device-model", remedy="name another --language"
        )
    remark = f"{language}, measured elsewhere on {model}: `swarm pending --bundle FILE` takes it there"
    return Choice([], model, language, remark)


def idle_one(devices: Sequence[Device]) -> Device:
    """Return the first device that nobody on this host measures on just now; the first if all are in use."""

    def is_idle(device: Device) -> bool:
        holder = owner(device_lock_path(device.uuid))
        return holder is None or not is_alive(holder)

    return next(filter(is_idle, devices), devices[0])


def describe(devices: Sequence[Device]) -> str:
    """Say in a few words what is measured on."""
    first = devices[0]
    if first.kind == "cpu":
        return f"the CPU ({first.model})"
    count = f"{len(devices)} × " if len(devices) > 1 else ""
    return f"{count}{first.model} ({', '.join(device.uuid[:UUID_CHARS] for device in devices)})"


def peaks_of(root: RunRoot, device: Device) -> Peaks:
    """Return the device's peaks; a CPU's are measured the first time, a GPU's are published."""
    path = root.peaks(device.model)
    if path.exists() or device.kind == "cuda":
        return calibration.load(path, device, root.build_cache)
    lock = device_lock_path(device.uuid)
    with held(lock, timeout_s=CALIBRATION_LOCK_S, purpose="calibrate the peaks"):
        return calibration.load(path, device, root.build_cache)


def open_pool(root: RunRoot, devices: Sequence[Device]) -> LocalPool:
    """Return a pool with a judge on each of `devices`, which are of one model; close it when done."""
    peaks = {devices[0].model: calibration.to_json(peaks_of(root, devices[0]))}
    return LocalPool(devices, root.build_cache, peaks, root.judge_logs)


def _said(text: str | None) -> str | None:
    return None if text in (None, "", AUTO) else text


def _known(language: str | None) -> str | None:
    """Return a language that was asked for; BadInput if there is none of this name."""
    known = tuple(dict.fromkeys((*ON_CPU, *ON_GPU)))
    if _said(language) not in (None, *known):
        raise BadInput(f"no language {language!r}", where="--language", remedy=suggest(str(language), known))
    return _said(language)


def _fitting(language: str | None) -> list[Device]:
    needs_gpu = language is not None and not runs_on(language, "cpu")
    may_use_gpu = language is None or runs_on(language, "cuda")
    if not may_use_gpu or (why_no_gpu() and not needs_gpu):
        return [cpu_device()]
    try:
        return _of_one_model(_gpus())
    except Refused as error:
        what = f"{language} runs on a GPU only, and {error.what}" if needs_gpu else error.what
        other = "" if needs_gpu else "; or give --device cpu"
        raise Refused(what, remedy=f"{error.remedy}{other}") from None


def _gpus() -> list[Device]:
    from swarm.judge.cuda.devices import cuda_devices

    return cuda_devices()


def _of_one_model(gpus: Sequence[Device]) -> list[Device]:
    """Return the GPUs of the first one's model: CUDA puts the fastest first."""
    return [gpu for gpu in gpus if gpu.model == gpus[0].model]


def _named(name: str) -> list[Device]:
    if name == "cuda":
        return _of_one_model(_gpus())
    if match := re.fullmatch(r"cuda:(\d+(?:,\d+)*)", name):
        gpus, numbers = _gpus(), [int(number) for number in match[1].split(",")]
        if max(numbers) >= len(gpus):
            raise _no_such(name, gpus)
        found = [gpus[number] for number in numbers]
    else:
        try:
            gpus = _gpus()
        except Refused as error:
            raise BadInput(
                f"no device {name!r}", where="--device", remedy=f"there is only cpu: {error.what}"
            ) from None
        found = [_by_uuid(part.strip(), name, gpus) for part in name.split(",")]
    distinct = list(dict.fromkeys(found))
    if len({gpu.model for gpu in distinct}) > 1:
        raise BadInput(
            f"{name!r} names GPUs of several models, whose times cannot be compared",
            where="--device",
            remedy=f"name some of one model: {_list(gpus)}",
        )
    return distinct


def _by_uuid(text: str, name: str, gpus: Sequence[Device]) -> Device:
    wanted = "gpu-" + text.lower().removeprefix("gpu-")
    found = [gpu for gpu in gpus if gpu.uuid.lower().startswith(wanted)]
    if wanted == "gpu-" or len(found) != 1:
        raise _no_such(name, gpus)
    return found[0]


def _no_such(name: str, gpus: Sequence[Device]) -> BadInput:
    return BadInput(f"no device {name!r}", where="--device", remedy=f"there are {_list(gpus)}")


def _list(gpus: Sequence[Device]) -> str:
    named = [f"cuda:{number} ({gpu.uuid}, {gpu.model})" for number, gpu in enumerate(gpus)]
    return ", ".join(["cpu", "cuda", *named])
