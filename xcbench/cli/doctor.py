"""The verb `doctor`: does a GPU compute what the CPU computes?"""

import sys
from typing import TYPE_CHECKING, Any

from xcbench.cli.console import duration, print_json, show_log, size
from xcbench.cli.options import JsonFlag, Names

if TYPE_CHECKING:
    from xcbench.runner.doctor import Diagnosis, Trial


def doctor(
    *,
    device: str = "cuda",
    minutes: float = 1.0,
    method: Names = (),
    json_: JsonFlag = False,
) -> None:
    """Train each method briefly on the CPU and on a device, and say whether the two agree, and how fast each is.

    Exit code 1 if any method differs by more than rounding explains. See docs/guides/gpu.md for the tolerance.

    Parameters
    ----------
    device
        The device in question: cuda or cuda:N.
    minutes
        About how long the timed trainings of each method take together.
    method
        Only this method; may be given several times. By default those of ours that run on a GPU.
    json_
        Print a JSON list with an object for each method.
    """
    import logging

    show_log()
    logging.getLogger("xcbench").setLevel(logging.WARNING)
    from xcbench.errors import InputError
    from xcbench.ranks import process_count
    from xcbench.runner.doctor import METHODS, doctor_dataset, examine
    from xcbench.runner.environment import check_device, choose_device
    from xcbench.threads import set_threads

    if process_count() > 1:
        raise InputError("torchrun is for `xcbench run`: the doctor examines one device")
    if not 0 <= minutes < float("inf"):
        raise InputError(f"--minutes is at least 0, got {minutes:g}")
    check_device(device)

    chosen = choose_device(device)
    set_threads()
    data = doctor_dataset()
    diagnoses = []
    for name in method or METHODS:
        diagnosis = examine(name, "cpu", chosen, data, minutes)
        diagnoses.append(diagnosis)
        if not json_:
            print(diagnosis_text(diagnosis), flush=True)

    failed = sum(diagnosis.problem is not None for diagnosis in diagnoses)
    if json_:
        print_json([_diagnosis_json(diagnosis) for diagnosis in diagnoses])
    else:
        print(f"{len(diagnoses) - failed} of {len(diagnoses)} methods agree on cpu and {chosen}")

    if failed:
        sys.exit(1)


def diagnosis_text(diagnosis: "Diagnosis") -> str:
    """Return one line about one method: verdict, figures, speed, memory and copies."""
    verdict = "ok"
    if diagnosis.problem:
        verdict = "DIFFERS"
    parts = []
    if diagnosis.problem:
        parts.append(diagnosis.problem)

    trials = diagnosis.on_real_data or diagnosis.on_toy_data
    if trials:
        parts += _comparison(*trials)
    if diagnosis.on_toy_data and diagnosis.on_toy_data[1].copies:
        copies = diagnosis.on_toy_data[1].copies
        parts.append(f"{copies.to_device} copies to it and {copies.from_device} back on toy data")
    return f"{verdict:7}  {diagnosis.method}: {'; '.join(parts)}"


def _comparison(reference: "Trial", other: "Trial") -> list[str]:
    """Return the costs and the first figure of two trials."""
    name = next(iter(reference.figures))
    faster = reference.seconds / max(other.seconds, 1e-9)
    parts = [
        f"{name} {reference.figures[name]:.2f} and {other.figures[name]:.2f}",
        f"training {duration(reference.seconds)} and {duration(other.seconds)} ({faster:.1f} times as fast)",
        f"prediction {duration(reference.predict_seconds)} and {duration(other.predict_seconds)}",
    ]
    if other.peak_device_memory:
        parts.append(f"peak {size(other.peak_device_memory)} on {other.device}")
    return parts


def _diagnosis_json(diagnosis: "Diagnosis") -> dict[str, Any]:
    result: dict[str, Any] = {"method": diagnosis.method, "problem": diagnosis.problem}
    by_data = {"toy_data": diagnosis.on_toy_data, "real_data": diagnosis.on_real_data}
    for name, trials in by_data.items():
        if trials:
            result[name] = [_trial_json(trial) for trial in trials]
    return result


def _trial_json(trial: "Trial") -> dict[str, Any]:
    copies = None
    if trial.copies:
        copies = vars(trial.copies)
    return {
        "device": trial.device,
        "epochs": trial.epochs,
        "seconds": trial.seconds,
        "predict_seconds": trial.predict_seconds,
        "peak_device_memory": trial.peak_device_memory,
        "copies": copies,
        "figures": dict(trial.figures),
    }
