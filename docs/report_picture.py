"""Draw docs/report.png, the picture of a report on its page and in the README, in Debian's chromium.

Run it when the report's looks change: ``.venv/bin/python docs/report_picture.py``.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 860, 1700


def main() -> None:
    """Write the demo's report, and take a picture of its top."""
    sys.path.insert(0, str(FOLDER.parent / "examples"))
    import demo

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        demo.main(Path(folder) / "demo.png")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((Path(folder) / "demo.html").as_uri())
        page.screenshot(path=Path(folder) / "report.png")
        browser.close()
        # Few colours: half the size.
        Image.open(Path(folder) / "report.png").quantize(200).save(FOLDER / "report.png", optimize=True)


if __name__ == "__main__":
    main()
