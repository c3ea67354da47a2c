"""What building a wheel adds to `pyproject.toml`: Redoc's bundle and its licence, which the pages of the public interfaces run
in a browser (`services/monitor/http/api_pages.py`).

Rules
  1. The bundle is brought as `make setup` brings it (`deploy/tools.sh redoc`): from npm, by the checksum of the lock file.
  2. Where it cannot be had, the wheel is built without it, and says so: the pages then list the operations.
  3. An editable installation takes it from `.tools`, as the checkout does.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CHECKOUT = Path(__file__).parent.resolve()
REDOC = CHECKOUT / ".tools" / "redoc" / "node_modules" / "redoc"
FILES = {REDOC / "bundles" / "redoc.standalone.js": "redoc.standalone.js", REDOC / "LICENSE": "redoc.LICENSE.txt"}


class BuildWithRedoc(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        subprocess.run(["sh", str(CHECKOUT / "deploy" / "tools.sh"), "redoc"], check=False)
        if not all(path.is_file() for path in FILES):
            print("this wheel lacks Redoc: its pages of the interfaces list operations only", file=sys.stderr)
            return
        pages = Path(self.build_lib) / "services" / "monitor" / "http" / "api"
        for path, name in FILES.items():
            shutil.copyfile(path, pages / name)


setup(cmdclass={"build_py": BuildWithRedoc})
