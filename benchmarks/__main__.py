"""Run the named benchmark modules (default: all), each in a process of its own, and print their figures.

`python -m benchmarks scale` has options of its own and takes hours, so it is not among them.
"""

import importlib
import pkgutil
import subprocess
import sys

import benchmarks
from benchmarks.figure import Figure

NOT_BENCHMARKS = {"__main__", "figure", "scale"}


def run_here(name: str) -> bool:
    """Measure one module in this process; returns whether every figure reached what it promises."""
    print(f"{name}:", flush=True)
    all_hold = True
    for figure in importlib.import_module(f"benchmarks.{name}").measure():
        all_hold &= figure.holds
        print(f"  {describe(figure)}", flush=True)
    return all_hold


def describe(figure: Figure) -> str:
    """Return a figure as one line."""
    ours = f"{figure.ours:.4g} {figure.unit}"
    reference = f"{figure.reference:.4g} {figure.unit} of {figure.reference_name}"

    verdict = "ok"
    if not figure.holds:
        verdict = f"BELOW the promised {figure.at_least:g}x"

    line = f"{figure.what}: {ours} against {reference}: {figure.ratio:.1f}x ({verdict})"
    if figure.note:
        line += f"; {figure.note}"
    return line


def main() -> int:
    """Run the command line; returns its exit code."""
    modules = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    known = sorted(name for name in modules if name not in NOT_BENCHMARKS)
    requested = sys.argv[1:]
    if requested[:1] == ["scale"]:
        from benchmarks.scale.command import main as scale

        return scale(requested[1:])

    unknown = set(requested) - {*known, "--here"}
    if unknown:
        print(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(known)}", file=sys.stderr)
        return 2

    if requested[:1] == ["--here"]:
        all_hold = [run_here(name) for name in requested[1:]]
        return 0 if all(all_hold) else 1

    # A process each: thread pools, warm caches and peak memory of one must not influence the next.
    exit_codes = []
    for name in requested or known:
        command = [sys.executable, "-m", "benchmarks", "--here", name]
        exit_codes.append(subprocess.run(command).returncode)
    return max(exit_codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
