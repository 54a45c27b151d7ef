# Runs each program of standard input (JSON) as a cell of a new IPython, and prints what each showed.
import io
import json
import sys
from base64 import b64encode
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

shown = []


class Publisher(DisplayPublisher):
    def publish(self, data, *_, **__):
        shown.append({"main": False, "data": data})


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, data, *_):
        shown.append({"main": True, "data": data})


class Shell(InteractiveShell):
    displayhook_class = Hook
    display_pub_class = Publisher

    def enable_gui(self, gui=None):
        pass


def run(code):
    shell = Shell.instance()
    shell.display_formatter.active_types = list(shell.display_formatter.formatters)
    if "matplotlib" in code:
        shell.enable_matplotlib("inline")
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        result = shell.run_cell(code, store_history=True)
        shell.events.trigger("post_execute")
    error = result.error_before_exec or result.error_in_exec
    # IPython prints tracebacks to stdout.
    return {"items": shown, "out": "" if error else out.getvalue(), "error": error and type(error).__name__}


# Jupyter's protocol has bytes as base64.
def to_text(value):
    return b64encode(value).decode()


with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
    json.dump(pool.map(run, json.load(sys.stdin), chunksize=1), sys.stdout, default=to_text)
