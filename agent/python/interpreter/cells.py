# Runs in the code's interpreter, as uid 1000, from the gate to the end of the code, if the job asked for results.
# Comes after results.py and tools.py: runs the code as a cell. The value of its last expression is the main result.
import _ast
import builtins
import os
import sys

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


def begin(tell_fd, answers_fd):
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
        run_once(tell_fd, answers_fd)

    hook._run_module_as_main = run_file


def offer_display(results):
    def display(*values):
        for value in values:
            results.send(value)

    builtins.display = display


def run_once(tell_fd, answers_fd):
    channel = Channel(tell_fd)
    results = Results(channel)
    figures = Figures(results)
    names = sys.modules["__main__"].__dict__
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader
    names.update(__file__=code_file, __loader__=loader("__main__", code_file))
    if sys.version_info < (3, 15):
        names["__cached__"] = None
    if answers_fd is not None:
        names.update(make_functions(Calls(channel, answers_fd)), ToolError=ToolError)

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
