"""What mkdocs adds to the written pages: the reference, made from the code, and results/.

Pages link to files of the repository as they lie there, so that the links work on any reader of Markdown. In the site
those files stand beside the pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)\s]+\))")
SHOWN = {".md", ".png", ".csv", ".ipynb", ".py", ".yaml", ".cff"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and the files of the repository that pages link to."""
    sys.path.insert(0, str(Path(__file__).parent))
    import reference

    for name, make in reference.PAGES.items():
        files.append(File.generated(config, name, content=make()))
    for path in _linked():
        files.append(_of_repository(path, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave docs/ lead to the copies beside the pages."""
    if not (ROOT / "docs" / page.file.src_uri).exists():
        return markdown
    depth = page.file.src_uri.count("/")

    def inside(found: re.Match[str]) -> str:
        start, up, rest = found.groups()
        if up.count("../") == depth + 1:
            return start + "../" * depth + rest
        return found[0]

    return LINK.sub(inside, markdown)


def _linked() -> list[Path]:
    """The files outside of docs/ that the site has: all tables and figures, and what any page links to."""
    found = {path for path in (ROOT / "results").glob("*/**/*") if path.suffix in (".md", ".png")}
    for page in (ROOT / "docs").rglob("*.md"):
        for link in LINK.finditer(page.read_text("utf-8")):
            target = (page.parent / link[2] / re.split("[#)]", link[3])[0]).resolve()
            if target.is_file() and not target.is_relative_to(ROOT / "docs"):
                found.add(target)
    return sorted(path for path in found if path.suffix in SHOWN and "runs" not in path.parts)


def _of_repository(path: Path, config: MkDocsConfig) -> Any:
    name = path.relative_to(ROOT).as_posix()
    return File(name, str(ROOT), config.site_dir, config.use_directory_urls)
