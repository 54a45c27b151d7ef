"""Runs in pip, as root without capabilities or as a user without rights, from its start to the end of one installation.

Runs pip without letting it start processes: building an sdist would run the package's own code.
"""

import importlib.util
import runpy
import site
import sys

_STARTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
}


def refuse_processes(event, arguments):
    if event in _STARTS:
        raise PermissionError("only wheels are installed, nothing is built: no %s" % event)


if importlib.util.find_spec("pip") is None:
    raise SystemExit("ERROR: the image has no pip to install the requirements with")
sys.addaudithook(refuse_processes)
# The folder where the code's interpreter looks, set by PYTHONUSERBASE. Only a build leaves out what the image has.
if "--user" not in sys.argv:
    sys.argv[2:2] = ["--target", site.getusersitepackages()]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
