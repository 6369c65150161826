"""The report: a folder of plain pages that needs no server and no network."""

from xcbench.report.site.build import build_report, datasets_with_runs

__all__ = ["build_report", "datasets_with_runs"]
