# Runs in the code's interpreter, as uid 1000, from the gate to the end of the code, if the job asked for results.
# Runs the code as a cell, and sends what it displays to PID 1, as MIME bundles. The value of its last expression is the
# main result. The gate gives it and tools.py builtins of their own, so code that patches builtins or modules breaks
# nothing here by accident.
import _ast
import builtins
import os
import sys
from _io import BufferedWriter, FileIO
from _thread import RLock
from fcntl import ioctl
from posix import F_OK, access, getpid, mkdir
from time import sleep

import tools
from tools import FIONREAD

try:
    from _json import encode_basestring as quoted
except ImportError:
    from json.encoder import encode_basestring as quoted

MOST_ITEMS, MOST_BYTES, MOST_OF_ITEM, MOST_OF_TEXT = 1000, 8 << 20, 1 << 20, 64 << 10
PAUSES = [0] * 100 + [0.0005] * 100
OURS = {each.__code__.co_filename for each in (lambda: 0, tools.wake)}
METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}
show_error = sys.__excepthook__
code_file = sys.argv[0]
FIGURES = "airlock_figures"
ONLY_AST, TOP_LEVEL_AWAIT, IS_COROUTINE = 0x400, 0x2000, 0x80
namespace_of = type(sys).__dict__["__dict__"].__get__


class Figures(type(sys)):
    """A backend of matplotlib that shows figures as results. It is loaded when matplotlib first uses it."""

    def __init__(self, results):
        super().__init__(FIGURES)
        names = namespace_of(self)

        def show(*_, **__):
            """Shows the open figures and closes them."""
            figures = sys.modules["matplotlib._pylab_helpers"].Gcf
            for manager in figures.get_all_fig_managers():
                if manager.canvas.figure is not names.get("shown"):
                    results.send(manager.canvas.figure)
            figures.destroy_all()

        def load():
            if "show" not in names and "matplotlib" in sys.modules:
                from matplotlib.backends import backend_agg

                names.update((key, value) for key, value in vars(backend_agg).items() if key[:2] != "__")
                names["show"] = show
            return names

        names["load"] = load

    # Old versions take all names, new ones each by itself.
    __dict__ = property(lambda self: self.load())

    def __getattr__(self, name):
        names = {} if name[:2] == "__" else self.load()
        if name in names:
            return names[name]
        raise AttributeError(name)

    def offer(self):
        """Makes it the backend unless the environment or the code names another one."""
        if "COLUMNS" not in os.environ:
            # Libraries print tables this wide: in Jupyter, pandas shows up to 20 columns.
            os.environ._data[b"COLUMNS"] = b"200"
        if "MPLBACKEND" in os.environ:
            return
        sys.modules[FIGURES] = self
        # Not by os.putenv: a program that the code starts has no such module.
        os.environ._data[b"MPLBACKEND"] = b"module://" + FIGURES.encode()
        if "matplotlib" in sys.modules:
            sys.modules["matplotlib"].use("module://" + FIGURES)

    def end(self, value):
        """Shows what is left, but for the value that was shown as the result."""
        names = namespace_of(self)
        if "show" in names and sys.modules["matplotlib"].get_backend() == "module://" + FIGURES:
            names["shown"] = value
            names["show"]()


class Cell:
    """Runs code in the namespace of __main__."""

    def __init__(self, names):
        self._names = names
        self._loop = None

    def run(self, source, path):
        """Returns the value of the last expression; None if there is none, or a semicolon after it."""
        codes, last, source = self.compile(source, path)
        if any(code.co_flags & IS_COROUTINE for code in codes):
            value = self._await(codes)
        else:
            value = [eval(code, self._names) for code in codes][-1]
        if b".show(" in source:
            explain_plotly()
        return None if last is None or is_quiet(source, last) else value

    def compile(self, source, path):
        """Returns the codes to run, the last expression, and the source from which they were compiled."""
        try:
            tree = compile(source, path, "exec", ONLY_AST | TOP_LEVEL_AWAIT, True)
        except IndentationError:
            source = without_indent(source)
            tree = compile(source, path, "exec", ONLY_AST | TOP_LEVEL_AWAIT, True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        codes = [compile(tree, path, "exec", TOP_LEVEL_AWAIT, True)]
        if last is not None:
            codes.append(compile(_ast.Expression(last.value), path, "eval", TOP_LEVEL_AWAIT, True))
        return codes, last, source

    def _await(self, codes):
        import asyncio

        async def run():
            value = None
            for code in codes:
                value = eval(code, self._names)
                if code.co_flags & IS_COROUTINE:
                    value = await value
            return value

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        main = run()
        try:
            return self._loop.run_until_complete(self._loop.create_task(main))
        except BaseException:
            self._end(main)
            raise

    def _end(self, main):
        """Ends a coroutine that was interrupted, so that it does not go on in the next cell."""
        import asyncio

        loop = self._loop
        if loop.is_running():  # interrupted between two lines of the loop itself
            asyncio._set_running_loop(None)
            loop._thread_id = None
        for task in asyncio.all_tasks(loop):
            if task.get_coro() is main:
                task.cancel()
                try:
                    loop.run_until_complete(task)
                except BaseException:
                    pass
        main.close()

    def close(self):
        """Ends what the code left in its event loop."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        import asyncio

        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Channel:
    """Messages to PID 1: kind (1 byte), length (4 bytes, big-endian), payload. Only this process sends them.

    An interrupt may end a send at any instant. The buffer has room for the largest message, so it is sent whole, by
    the next send at the latest, or not at all.
    """

    def __init__(self, fd):
        self._fd = fd
        self._writer = BufferedWriter(FileIO(fd, "w", False), MOST_OF_ITEM + (64 << 10))
        self._lock = RLock()
        self._waiting = []
        self._pid = getpid()

    def is_ours(self):
        return getpid() == self._pid

    def send(self, kind, payload=b""):
        self._waiting.append(kind + len(payload).to_bytes(4, "big") + payload)
        with self._lock:
            while self._waiting:
                message = self._waiting.pop(0)
                try:
                    self._writer.write(message)
                    self._writer.flush()
                    self._wait_until_read()
                except OSError:
                    pass  # the code closed it
                except RuntimeError:  # a signal handler of the thread that writes, which sends this afterwards
                    self._waiting.insert(0, message)
                    return

    def send_after_output(self, kind, payload):
        """Sends it after what the code has printed."""
        flush()
        self.send(kind, payload)

    def finish(self):
        """Sends the rest of a message whose sending was interrupted."""
        with self._lock:
            try:
                self._writer.flush()
            except OSError:
                pass

    def _wait_until_read(self):
        """Waits, so that what is printed from here on comes after the message."""
        for pause in PAUSES:
            if ioctl(self._fd, FIONREAD, bytes(4)) == bytes(4):
                return
            sleep(pause)


class Results:
    """Sends items within their limits; of what is beyond them, the text or nothing."""

    def __init__(self, channel):
        self._channel = channel
        self.begin()

    def begin(self):
        self._count = self._bytes = 0
        self._is_cut = False

    def send(self, value, is_main=False):
        # One is kept for the main result.
        if self._count >= MOST_ITEMS - (not is_main):
            self._cut()
            return
        data, is_cut = bundle_of(value)
        if not self._channel.is_ours():
            print(data.get("text/plain", ""), flush=True)
            return
        if not data:
            return
        payload = encode(data, is_main)
        if not self._fits(payload):
            is_cut = True
            keep_pictures(data, self._count + 1)
            payload = encode({"text/plain": data.get("text/plain", "")}, is_main)
        if is_cut:
            self._cut()
        if not self._fits(payload):
            return
        self._count += 1
        self._bytes += len(payload)
        self._channel.send_after_output(b"y", payload)

    def _cut(self):
        if not self._is_cut:
            self._is_cut = True
            self._channel.send(b"t")

    def _fits(self, payload):
        return len(payload) <= MOST_OF_ITEM and self._bytes + len(payload) <= MOST_BYTES


def encode(data, is_main):
    entries = ",".join(["%s:%s" % (quoted(name), quoted(data[name])) for name in data])
    text = '{"main":%s,"data":{%s}}' % ("true" if is_main else "false", entries)
    return text.encode("utf-8", "replace")


def keep_pictures(data, number):
    """Writes the pictures of an item that is too large to files of /output."""
    for name in PICTURES.keys() & data.keys():
        try:
            import binascii

            text = data[name]
            content = text.encode("utf-8", "replace") if name == "image/svg+xml" else binascii.a2b_base64(text)
            folder = "/output/_results"
            if not access(folder, F_OK):
                mkdir(folder)
            with open("%s/%d.%s" % (folder, number, PICTURES[name]), "xb") as file:
                file.write(content)
        except Exception:
            pass


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def bundle_of(value):
    """The forms of a value by MIME type, as text or base64; and whether its text was cut."""
    data = {}
    if not isinstance(value, type) and not has_every_attribute(value):
        found = ask(value, "_repr_mimebundle_", include=None, exclude=None)
        found = found[0] if isinstance(found, tuple) and found else found
        if isinstance(found, dict):
            data.update(found)
        for name, method in METHODS.items():
            if name not in data:
                data[name] = ask(value, method)
    if is_figure(value):
        data["image/png"] = png_of(value)
    if "text/plain" not in data:
        try:
            data["text/plain"] = repr(value)
        except Exception as error:
            complain(error)
    data = {name: as_text(part) for name, part in data.items() if isinstance(name, str)}
    data = {name: part for name, part in data.items() if part is not None}
    is_cut = len(data.get("text/plain", "")) > MOST_OF_TEXT
    if is_cut:
        data["text/plain"] = data["text/plain"][:MOST_OF_TEXT] + "…"
    return data, is_cut


def has_every_attribute(value):
    """Whether it answers to any name, as mocks and proxies do, or to none."""
    try:
        return getattr(value, "_airlock_has_no_such_attribute_", None) is not None
    except Exception:
        return True


def ask(value, name, **arguments):
    try:
        method = getattr(value, name, None)
        return method(**arguments) if callable(method) else None
    except NotImplementedError:
        return None
    except Exception as error:
        complain(error)
        return None


def as_text(part):
    if isinstance(part, tuple) and part:
        part = part[0]  # metadata comes second
    if isinstance(part, str):
        return str.__str__(part)
    try:
        if isinstance(part, (bytes, bytearray)):
            import binascii

            return binascii.b2a_base64(part, newline=False).decode()
        if isinstance(part, (dict, list)):
            import json

            return json.dumps(part)
    except Exception as error:
        complain(error)
    return None


def complain(error):
    """Prints an exception that does not end the code."""
    error.__traceback__ = without_ours(error.__traceback__)
    show_error(type(error), error, error.__traceback__)


def without_ours(trace):
    """A traceback from the first frame of the code on, without those of a tool that it called."""
    ours = trace
    while ours and ours.tb_frame.f_code.co_filename != code_file:
        ours = ours.tb_next
    while ours is None and trace and trace.tb_frame.f_code.co_filename in OURS:
        trace = trace.tb_next
    last = each = ours
    while each:
        if each.tb_frame.f_code.co_filename not in OURS:
            last = each
        each = each.tb_next
    if last is not None:
        last.tb_next = None
    return ours or trace


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def png_of(figure):
    try:
        import io

        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()
    except Exception as error:
        complain(error)
        return None


def explain_plotly():
    renderers = getattr(sys.modules.get("plotly.io._renderers"), "renderers", None)
    if getattr(renderers, "default", None) == "":
        print("show() of plotly needs a browser, and does nothing here: display(figure) shows one.", file=sys.stderr)


def without_indent(source):
    """Removes the indent of the first line from all lines, as IPython does: the code may be from inside a function."""
    lines = source.splitlines(True)
    first = next((line for line in lines if line.strip()), b"")
    indent = first[: len(first) - len(first.lstrip(b" \t"))]
    return b"".join([line[len(indent) :] if line.startswith(indent) else line for line in lines])


def is_quiet(source, last):
    """Whether a semicolon follows the last expression. Its place is in bytes of UTF-8."""
    rest = source.splitlines()[last.end_lineno - 1 :]
    rest[0] = rest[0][last.end_col_offset :]
    return b"".join(rest).lstrip().startswith(b";")


def show_failure(error):
    """Prints an exception as the interpreter does when it ends with it: see PyErr_PrintEx."""
    error.__traceback__ = trace = without_ours(error.__traceback__)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = getattr(sys, "excepthook", show_error)
    sys.audit("sys.excepthook", hook, type(error), error, trace)
    try:
        hook(type(error), error, trace)
    except Exception as another:
        sys.stderr.write("Error in sys.excepthook:\n")
        complain(another)
        sys.stderr.write("\nOriginal exception was:\n")
        show_error(type(error), error, trace)
    if isinstance(error, SyntaxError) and (error.text or "").lstrip()[:1] in ("%", "!"):
        sys.stderr.write("This is Python, not IPython: lines with % or ! do not run.\n")
    if isinstance(error, RuntimeError) and str(error) == "no running event loop":
        sys.stderr.write("Code that uses await outside of functions runs in an event loop: await something in it.\n")
        # Otherwise the coroutine lives as long as the traceback, and its warning appears in a later cell.
        drop_frames_of_asyncio(trace)


def drop_frames_of_asyncio(trace):
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.rpartition("/")[0].endswith("/asyncio"):
            trace.tb_frame.clear()
        trace = trace.tb_next


def begin(run, *given):
    """Makes the interpreter run its file as a cell. What it runs by a module's name, runpy runs for it; it asks
    path_importer_cache whether the file is such a thing.
    """
    runpy = sys.modules.get("runpy")
    sys.path_importer_cache[code_file] = begin
    hook = sys.modules["runpy"] = type(sys)("runpy")

    def run_file(*_):
        del sys.path_importer_cache[code_file], sys.modules["runpy"]
        if runpy is not None:
            sys.modules["runpy"] = runpy
        # Python put the path of the file there.
        sys.path[0] = code_file.rpartition("/")[0]
        if getattr(sys.flags, "safe_path", False):
            del sys.path[0]
        run(*given)

    hook._run_module_as_main = run_file


def offer_display(results):
    def display(*values):
        for value in values:
            results.send(value)

    builtins.display = display


def run(tell_fd, _report, answers_fd):
    channel = Channel(tell_fd)
    results = Results(channel)
    figures = Figures(results)
    names = sys.modules["__main__"].__dict__
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
    names.update(__file__=code_file, __loader__=loader("__main__", code_file))
    if sys.version_info < (3, 15):
        names["__cached__"] = None
    if answers_fd is not None:
        names.update(tools.make_functions(tools.Calls(channel, answers_fd)), ToolError=tools.ToolError)

    offer_display(results)
    with open(code_file, "rb") as file:
        source = file.read()
    cell = Cell(names)
    value = failure = None
    try:
        figures.offer()
        value = cell.run(source, code_file)
        if value is not None:
            builtins._ = value
            results.send(value, True)
    except SystemExit:
        raise
    except BaseException as error:
        failure = error
    finally:
        for end in (lambda: figures.end(value), cell.close):
            try:
                end()
            except Exception as error:
                complain(error)
    if failure is not None:
        show_failure(failure)
        sys.exit(1)
