"""A real headless Chromium: what it shows, what it logs, what it asks for, and what axe-core says of a page."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_core_python
from debian import install_packages, which
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
AXE = Path(str(axe_core_python.__file__)).with_name("axe.min.js")
SERIOUS = ("serious", "critical")


def install() -> str | None:
    """Install Chromium when it is missing; None when it is there, else the reason why it is not."""
    missing = [package for program, package in PROGRAMS.items() if which(program) is None]
    if not missing:
        return None
    if os.geteuid() != 0 or which("apt-get") is None:
        packages = " ".join(missing)
        command = f"apt-get install --no-install-recommends {packages}"
        return f"Chromium is not installed and cannot be: as root run {command}"
    with open("/tmp/vst-chromium-install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        problem = install_packages([*missing, "fonts-dejavu-core"])
    return f"apt-get did not install Chromium: {problem}" if any(which(one) is None for one in PROGRAMS) else None


class Browser:
    """One window; ``show`` loads a page from the disk at a size and in a colour scheme."""

    def __init__(self, profile: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(which("chromedriver"))))

    def show(self, page: Path, width: int = 1600, height: int = 900, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)  # what came before is not of this page
        self.driver.get(page.absolute().as_uri())

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)  # type: ignore[no-untyped-call]

    def complaints(self) -> list[str]:
        """What the console says since the page was loaded."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was loaded."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [one for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [one["params"]["request"]["url"] for one in sent]

    def violations(self) -> list[str]:
        """What axe-core finds that is serious or worse, with the places where."""
        self.run(AXE.read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[0])")  # type: ignore[no-untyped-call]
        return [
            f"{one['id']} ({one['impact']}): {[(node['target'], node['failureSummary']) for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """Write a PNG of the window, or of the first ``height`` pixels of the page."""
        shot: dict[str, Any] = {"format": "png"}
        if height is not None:
            width = self.run("return innerWidth")
            shot |= {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
            }
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="vst-chromium-", ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            yield browser
        finally:
            browser.driver.quit()
