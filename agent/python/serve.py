# Runs in the code's interpreter, as uid 1000, from the start of a session to the interpreter's end.
# Serves the calls of a session. The code of each is a cell. Like cells.py, it has builtins of its own.
import _signal
import builtins
import io
import linecache
import os
import sys
from fcntl import ioctl
from os import fsdecode
from time import tzset
from posix import F_OK, O_RDONLY, _exit, access, close, dup2, read
from posix import open as open_fd

import cells
from cells import OURS, Cell, Channel, Figures, Results, complain, flush, offer_display, show_failure
from tools import FIONREAD, Calls, ToolError, make_functions

ENV, CALL, CODE = "/code/.env", "/code/.call", "/code/main.py"
STDIN, ARGS, ANSWERS = "/input/_stdin", "/input/_args", "/code/.answers"
MOST_OF_MESSAGE = 64 << 10
LONG_CODE = 64 << 10  # as in session.py
interrupt, set_handler, handler_of = _signal.SIGINT, _signal.signal, _signal.getsignal
nudge, show_ignored = _signal.SIGURG, getattr(sys, "__unraisablehook__", None)
environ, text_file, buffered, file_io = os.environ, io.TextIOWrapper, io.BufferedReader, io.FileIO
OURS.add((lambda: 0).__code__.co_filename)


class SessionCell(Cell):
    def __init__(self, names, channel):
        super().__init__(names)
        self._channel = channel

    def compile(self, source, path):
        """Tells PID 1 when long code is compiled: no signal interrupts that."""
        try:
            return super().compile(source, path)
        finally:
            if len(source) > LONG_CODE:
                self._channel.send(b"b")


class Caller:
    """What a call brings besides its code: variables of the environment, arguments, stdin."""

    def __init__(self):
        environ.update(self._variables(words_of(ENV)))
        tzset()
        self._before = {}
        self._has_stdin = False

    def begin(self, has_inputs):
        """Returns the number of the call."""
        words = words_of(CALL)
        variables = self._variables([word[1:] for word in words if word[:1] == b"e"])
        self._before = {name: environ.get(name) for name in variables}
        environ.update(variables)
        if "TZ" in variables:
            tzset()
        sys.argv[1:] = map(fsdecode, words_of(ARGS)) if has_inputs else ()
        self._open_stdin(has_inputs)
        return next(int(word[1:]) for word in words if word[:1] == b"n")

    def end(self):
        for name, value in self._before.items():
            if value is not None:
                environ[name] = value
            elif name in environ:
                del environ[name]
        if "TZ" in self._before:
            tzset()

    def _open_stdin(self, has_inputs):
        has_stdin = has_inputs and access(STDIN, F_OK)
        if has_stdin or self._has_stdin:
            fd = open_fd(STDIN if has_stdin else "/dev/null", O_RDONLY)
            dup2(fd, 0)
            close(fd)
            # The call before may have read ahead.
            sys.stdin = text_file(buffered(file_io(0, closefd=False)), "utf-8", "surrogateescape")
        self._has_stdin = has_stdin

    @staticmethod
    def _variables(words):
        return dict(fsdecode(word).split("=", 1) for word in words)


class CallsOfCell(Calls):
    """A function that the code has kept may read until it is gone, too."""

    def __del__(self):
        close(self._fd)


class CellTools:
    """The caller's functions, which have their names in `names` for one call."""

    def __init__(self, names, channel):
        self._names = names
        self._calls = CallsOfCell(channel, open_fd(ANSWERS, O_RDONLY))
        self._functions = make_functions(self._calls)
        self._hidden = {name: names[name] for name in self._functions if name in names}
        names.update(self._functions, ToolError=ToolError)

    def end(self):
        self._calls.end("The call of the session that brought this tool has ended.")
        for name, function in self._functions.items():
            if self._names.get(name) is not function:
                continue  # the code has bound or deleted it
            if name in self._hidden:
                self._names[name] = self._hidden[name]
            else:
                del self._names[name]


def words_of(path):
    """The words of a file, with a NUL behind or between them."""
    if not access(path, F_OK):
        return []
    with file_io(path) as file:
        return [word for word in file.readall().split(b"\0") if word]


def show_with_lines(kind, error, trace):
    """Before Python 3.13, the interpreter itself does not find the source lines of cells."""
    import traceback

    print("".join(traceback.format_exception(kind, error, trace)), end="", file=sys.stderr)


def hear_late(*_):
    """Ignores interrupts between two cells. With SIG_IGN, Python would report an error for an earlier signal."""


is_lost = False


def note_lost(ignored):
    """Python ignores what is raised in __del__ and in callbacks of weak references, an interrupt too. Before Python 3.8,
    nothing tells of it."""
    global is_lost
    if ignored.exc_type is KeyboardInterrupt:
        is_lost = True
    else:
        show_ignored(ignored)


def nudged(_, frame):
    """Raises a lost interrupt anew, unless that would be ignored again."""
    global is_lost
    if is_lost and frame.f_code is not note_lost.__code__:
        is_lost = False
        raise KeyboardInterrupt


class Server:
    def __init__(self, tell_fd, report, go_fd):
        self._go_fd, self._report = go_fd, report
        self._channel = Channel(tell_fd)
        self._results = Results(self._channel)
        self._caller = Caller()
        self._figures = Figures(self._results)
        self._figures.offer()
        self._names = sys.modules["__main__"].__dict__
        self._cell = SessionCell(self._names, self._channel)
        self._handler = _signal.default_int_handler
        offer_display(self._results)
        if sys.version_info < (3, 13):
            sys.excepthook = show_with_lines

    def serve(self):
        self._channel.send(b"s")
        while True:
            try:
                word = read(self._go_fd, 1)
            except OSError:
                _exit(1)
            except BaseException as error:  # a handler of a signal raised it
                complain(error)
                continue
            if word == b"k":
                continue  # it was meant for a call that has already ended
            if word not in (b"g", b"i", b"t"):
                _exit(1)
            try:
                status = self._call(word)
            except BaseException:  # another interrupt, sent by the code itself
                set_handler(interrupt, hear_late)
                status = 1
            if not self._channel.is_ours():
                _exit(status)
            self._channel.send(b"x", b"%d" % status)

    def _call(self, word):
        """Runs one cell. Returns its exit status."""
        global is_lost
        number = self._caller.begin(word != b"g")
        tools = CellTools(self._names, self._channel) if word == b"t" else None
        self._results.begin()
        cells.code_file = path = "<cell %d>" % number
        with file_io(CODE) as file:
            source = file.readall()
        value = failure = None
        status = 0

        def run():
            nonlocal value, failure, status
            set_handler(interrupt, self._handler)
            self._end_if_told()
            try:
                value = self._run(source, path)
            except SystemExit as error:
                status = status_of(error)
            except BaseException as error:
                failure = error

        # Each part may run functions of the code. An interrupt ends the part in which it comes.
        parts = [run, lambda: self._show_figures(value), lambda: self._fail(failure), flush]
        while True:
            try:
                while parts:
                    parts.pop(0)()
                if handler_of(interrupt) is not hear_late:
                    self._handler = handler_of(interrupt)
                    set_handler(interrupt, hear_late)
                is_lost = False
                break
            except BaseException as error:
                if failure is None:
                    failure = error
        for caller in (self._caller, tools):
            try:
                if caller is not None:
                    caller.end()
            except BaseException as error:
                complain(error)
        return status if failure is None else 1

    def _end_if_told(self):
        """PID 1 sends an interrupt as a word too, because a signal before this point is ignored."""
        if ioctl(self._go_fd, FIONREAD, bytes(4)) != bytes(4):
            set_handler(interrupt, hear_late)
            raise KeyboardInterrupt

    def _run(self, source, path):
        lines = source.decode("utf-8", "replace").splitlines()
        linecache.cache[path] = len(source), None, [line + "\n" for line in lines], path
        value = self._cell.run(source, path)
        if value is not None:
            builtins._ = value
            self._results.send(value, True)
        return value

    def _show_figures(self, value):
        try:
            self._figures.end(value)
        except Exception as error:
            complain(error)

    def _fail(self, failure):
        if failure is not None:
            self._channel.finish()  # before Python 3.10, an audit hook reports the exception past the channel
            show_failure(failure)
            self._report(MOST_OF_MESSAGE, self._channel.send)


def status_of(error):
    """The exit status of a SystemExit, as the interpreter has it."""
    code = error.code
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def run(tell_fd, report, go_fd):
    set_handler(interrupt, hear_late)
    set_handler(nudge, nudged)
    sys.unraisablehook = note_lost
    # Cells find the modules that they have written.
    sys.path.insert(0, "/output")
    Server(tell_fd, report, go_fd).serve()
