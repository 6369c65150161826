"""The verb `check`: does a method keep the contract?"""

import sys
from typing import TYPE_CHECKING

from xcbench.cli.console import print_json, show_log
from xcbench.cli.options import JsonFlag

if TYPE_CHECKING:
    from xcbench.runner.check import Finding


def check(
    *,
    method: str,
    json_: JsonFlag = False,
) -> None:
    """Try a method on toy data: does it train, predict, save, repeat itself and stay away from the test points?

    Parameters
    ----------
    method
        A name that `xcbench list methods` shows, or the path of a Python file that registers a method.
    json_
        Print a JSON list with an object for each question.
    """
    import logging

    show_log()
    logging.getLogger("xcbench").setLevel(logging.WARNING)
    from xcbench.runner.check import check_method
    from xcbench.threads import set_threads

    set_threads()
    findings = []
    for finding in check_method(method):
        findings.append(finding)
        if not json_:
            _print_finding(finding)

    broken = sum(finding.broken for finding in findings)
    if json_:
        print_json([vars(finding) for finding in findings])
    else:
        print(f"{len(findings) - broken} of {len(findings)} promises hold")

    if broken:
        sys.exit(1)


def _print_finding(finding: "Finding") -> None:
    verdict = "ok"
    if finding.broken:
        verdict = "FAILS"
    elif finding.problem:
        verdict = "note"

    print(f"{verdict:5}  {finding.question}", flush=True)
    if finding.problem:
        print(f"       {finding.problem}", flush=True)
