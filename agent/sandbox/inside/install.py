"""Installs packages into the image that this container is to become.

Reads from stdin one line of JSON, {"requirements", "pip_env", "files": [{"name", "size"}]}, and then the
files' bytes. The log goes to stderr, the last word {"python_version"} to stdout. What must not stay in
the image, secrets first of all, comes this way, and goes no further than to memory and to /tmp, a volume.
"""

import json
import os
import shutil
import subprocess
import sys
import threading

_FOLDER = "/tmp/airlock-build"


def main():
    os.umask(0o022)
    orders = json.loads(sys.stdin.buffer.readline())
    for file in orders["files"]:
        receive(os.path.join(_FOLDER, file["name"]), file["size"])
    if orders["requirements"]:
        threading.Thread(target=end_with_agent, daemon=True).start()
        install(orders["requirements"], orders["pip_env"])
    sys.stdout.write(json.dumps({"python_version": "%d.%d.%d" % sys.version_info[:3]}))


def end_with_agent():
    """Ends this container, and pip with it, when its input ends: its agent is gone then."""
    if not os.read(0, 1):
        os._exit(1)


def receive(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while size > 0:
            chunk = sys.stdin.buffer.read(min(size, 1024 * 1024))
            if not chunk:
                raise SystemExit("the agent hung up")
            file.write(chunk)
            size -= len(chunk)


def install(requirements, pip_env):
    # -B: pip's own bytecode does not belong into the image; that of the packages it compiles anyway.
    command = [shutil.which("python3"), "-B", "-m", "pip", "install", "--", *requirements]
    status = subprocess.call(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd="/tmp",
        env={**os.environ, "HOME": "/tmp", **pip_env},
    )
    if status != 0:
        raise SystemExit(status)


main()
