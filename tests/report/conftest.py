"""A real browser for the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
OPTIONS += ["--no-first-run"]

PATIENCE = 120_000
"""Milliseconds: a busy machine takes its time, and what is right needs none of it."""

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, as it is installed; nothing is downloaded."""
    path = os.environ.get("MNEMOS_CHROMIUM") or shutil.which("chromium")
    assert path, "no chromium found; 'make chromium' installs it, or $MNEMOS_CHROMIUM names it"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser) -> Callable[..., AbstractContextManager[Page]]:
    """Opens a page from disk; afterwards there must be no error and no request to any network."""

    @contextmanager
    def open_page(path: Path, script: str = "", **options: Any) -> Iterator[Page]:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        page = context.new_page()
        page.add_init_script(script)
        page.set_default_timeout(PATIENCE)
        errors: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.resolve().as_uri())
        yield page
        context.close()
        assert errors == []
        assert requests
        assert {url.split(":")[0] for url in requests} <= {"file", "data", "blob"}

    return open_page
