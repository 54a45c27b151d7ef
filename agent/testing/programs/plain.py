"""Runs each program of a JSON list on stdin (its code, arguments and standard input, or null) as
`python3 /code/main.py` is run by hand: as uid 1000,
without capabilities, in /output, unbuffered. Prints a JSON list of exit code, stdout and stderr."""

import base64
import json
import os
import shutil
import subprocess
import sys

from kernel import CODE_UID, become_unprivileged, harden_supervisor

USER = {"USER": "user", "LOGNAME": "user", "LANG": "C.UTF-8"}


def clear(folder):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def run(program, args, given):
    clear("/output")
    clear("/tmp")
    with open("/code/main.py", "wb") as file:
        file.write(base64.b64decode(program))
    with open("/input/data.json", "w") as file:
        file.write("{}")
    if given is not None:
        with open("/input/_stdin", "w", encoding="utf-8") as file:
            file.write(given)
    # A user who runs it by hand owns the pipes, too.
    os.seteuid(CODE_UID)
    try:
        done = subprocess.run(
            ["python3", "/code/main.py", *args],
            stdin=subprocess.DEVNULL if given is None else open("/input/_stdin"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/output",
            env={**os.environ, **USER, "HOME": "/tmp", "PYTHONUNBUFFERED": "1"},
            preexec_fn=lambda: (os.seteuid(0), harden_supervisor(), become_unprivileged()),
            start_new_session=True,
        )
    finally:
        os.seteuid(0)
    return [done.returncode, *(base64.b64encode(text).decode() for text in (done.stdout, done.stderr))]


json.dump([run(*each) for each in json.load(sys.stdin)], sys.stdout)
