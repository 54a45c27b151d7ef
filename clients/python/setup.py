"""Makes the generated modules of the client where a fresh clone is built. An sdist has them."""

import subprocess
from pathlib import Path

from setuptools import setup

_HERE = Path(__file__).resolve().parent

if not (_HERE / "src/airlock/types.py").exists():
    made = subprocess.run(["sh", str(_HERE.parent.parent / "scripts/run"), "scripts/docs/write-clients.ts"])
    if made.returncode != 0:
        raise SystemExit("airlock/types.py could not be made: see above. It needs Node 22 or newer.")
setup()
