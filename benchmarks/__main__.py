"""Run the named benchmark modules (default: all), each in a process of its own, and print their figures."""

import importlib
import pkgutil
import subprocess
import sys

import benchmarks

NOT_BENCHMARKS = {"__main__", "figure"}


def run_here(name: str) -> bool:
    """Measure one module in this process; True where every figure reached what it promises."""
    print(f"{name}:", flush=True)
    all_hold = True
    for figure in importlib.import_module(f"benchmarks.{name}").measure():
        all_hold &= figure.holds
        verdict = "ok" if figure.holds else f"BELOW the promised {figure.at_least:g}x"
        print(
            f"  {figure.what}: {figure.ours:.4g} {figure.unit} against {figure.reference:.4g} {figure.unit} of "
            f"{figure.reference_name}: {figure.ratio:.1f}x ({verdict}){'; ' + figure.note if figure.note else ''}",
            flush=True,
        )
    return all_hold


def main() -> int:
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name not in NOT_BENCHMARKS)
    wanted = sys.argv[1:]
    if unknown := set(wanted) - {*known, "--here"}:
        print(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    if wanted[:1] == ["--here"]:
        held = [run_here(name) for name in wanted[1:]]
        return 0 if all(held) else 1
    # A process each: thread pools, warm caches and peak memory of one must not colour the next.
    command = [sys.executable, "-m", "benchmarks", "--here"]
    codes = [subprocess.run([*command, name]).returncode for name in wanted or known]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
