"""The verb `check`: does a method keep the contract?"""

import json
import sys
from typing import Annotated

from cyclopts import Parameter

from xcbench.cli.console import show_log


def check(
    *,
    method: str,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Try a method on toys: does it train, predict, save, repeat itself and stay away from the test points?

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
            word = "FAILS" if finding.broken else "note" if finding.problem else "ok"
            print(f"{word:5}  {finding.question}", flush=True)
            if finding.problem:
                print(f"       {finding.problem}", flush=True)
    broken = sum(finding.broken for finding in findings)
    if json_:
        print(json.dumps([vars(finding) for finding in findings], indent=2))
    else:
        print(f"{len(findings) - broken} of {len(findings)} promises hold")
    if broken:
        sys.exit(1)
