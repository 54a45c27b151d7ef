# The job's interpreter finds this file as `sitecustomize` while it starts, and waits here for the
# job. It imports nothing that a fresh interpreter has not loaded, and leaves no trace that the
# code would meet: __main__, sys.argv, frames and tracebacks are the interpreter's own.
# The supervisor puts one line before it that sets go_fd, tell_fd, gate_dir, python_path, preload.


def wait_for_go():
    import os
    import posix
    import sys
    import time

    def import_ahead(name):
        try:
            __import__(name)
        except BaseException as error:
            return "%s\0%s: %s\0" % (name, type(error).__name__, error)
        return ""

    failures = "".join(import_ahead(name) for name in preload)
    cpu_ns = time.process_time_ns()
    posix.write(tell_fd, ("%d\0%s" % (cpu_ns, failures)).encode("utf-8", "replace")[:4096])
    if posix.read(go_fd, 1) != b"g":
        posix._exit(1)
    posix.close(go_fd)
    posix.set_inheritable(tell_fd, False)
    posix.set_blocking(tell_fd, False)

    if python_path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = python_path
    sys.path.remove(gate_dir)
    sys.path_importer_cache.pop(gate_dir, None)
    del sys.modules["sitecustomize"]


def exception_reporter():
    """An audit hook that tells the supervisor of an uncaught exception before it is printed."""
    import posix

    write, getpid, fd, job = posix.write, posix.getpid, tell_fd, posix.getpid()
    mro_of, name, text, error_class = type.__dict__["__mro__"].__get__, type, str, BaseException
    length = len

    def report(event, args):
        if event != "sys.excepthook" or getpid() != job:
            return
        try:
            error = args[2]
            classes = ["%s.%s" % (c.__module__, c.__qualname__) for c in mro_of(name(error))]
            names = "\0".join([c[:100] for c in classes[:1] + classes[1:][-15:]])
            body = "%s\0\0%s" % (names, text(error)[:1000])
            body = body.encode("utf-8", "backslashreplace")[:4000]
            write(fd, length(body).to_bytes(2, "big") + body)
        except error_class:
            pass

    return report


wait_for_go()
__import__("sys").addaudithook(exception_reporter())
import sitecustomize  # noqa: E402,F401  the image's own, if there is one
