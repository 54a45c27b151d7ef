# The job's interpreter finds this file as `sitecustomize` while it starts, and waits here for the
# job. It leaves nothing that the code would meet: modules, paths, __main__, sys.argv, frames and
# tracebacks are those of a fresh interpreter.
# With a control_fd zygote.py is there, too.

# The supervisor puts the values where "settings" stands; see job.py.
go_fd, tell_fd, control_fd, gate_dir, python_path, preload = "settings"


def report_exception_at_exit():
    """Has the interpreter's last act be to tell the supervisor which exception ended the code.

    Returns a list of one pid, the process whose exception it is, and the list of modules to spare then:
    of each its name, and its namespace with the size that this has as long as the code adds nothing to it.

    An excepthook is for the code to replace, and an audit hook makes each id() take 180 ns instead
    of 40, so that it serves only before 3.10, where what atexit knows dies with its module.
    """
    import posix
    import sys

    write, getpid, job, fd = posix.write, posix.getpid, [posix.getpid()], tell_fd
    mro_of, class_of, text, error_class = type.__dict__["__mro__"].__get__, type, str, BaseException
    length, spared, modules = len, [], sys.modules

    def end():
        report()
        # Nothing takes apart what is no module any more: see freeze_start_up.
        for name, names, size in spared:
            if names is None or length(names) == size:
                modules.pop(name, None)

    def report():
        try:
            error = sys.last_value
            if getpid() != job[0]:
                return
            classes = ["%s.%s" % (c.__module__, c.__qualname__) for c in mro_of(class_of(error))]
            names = "\0".join([name[:100] for name in classes[:1] + classes[1:][-15:]])
            body = "%s\0\0%s" % (names, text(error)[:1000])
            body = body.encode("utf-8", "backslashreplace")[:4000]
            write(fd, length(body).to_bytes(2, "big") + body)
        except error_class:
            pass

    if sys.version_info < (3, 10):
        sys.addaudithook(lambda event, _: event == "sys.excepthook" and report())
        return job, spared
    import atexit

    atexit.register(end)
    del sys.modules["atexit"]
    return job, spared


def wait_for_go(job, spared):
    import posix
    import sys
    import time

    def import_ahead(name):
        try:
            __import__(name)
        except BaseException as error:
            return "%s\0%s: %s\0" % (name, type(error).__name__, error)
        return ""

    forget_gate()
    count_cpus()
    before = set(sys.modules)
    failures = "".join(import_ahead(name) for name in preload)
    # Has the finders read the folders of sys.path before the job is there.
    sys.meta_path[-1].find_spec("-")
    freeze_start_up(before, spared)
    traces = "" if control_fd is None else fork_jobs()  # noqa: F821
    job[0] = posix.getpid()
    told = "%d\0%d\0%s\0%s" % (job[0], time.process_time_ns(), traces, failures)
    posix.write(tell_fd, told.encode("utf-8", "replace")[:4096])
    if posix.read(go_fd, 1) != b"g":
        posix._exit(1)
    posix.close(go_fd)
    add_packages()
    posix.set_inheritable(tell_fd, False)
    posix.set_blocking(tell_fd, False)
    del sys.modules["sitecustomize"]


def forget_gate():
    import os
    import sys

    if python_path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = python_path
    sys.path.remove(gate_dir)
    sys.path_importer_cache.pop(gate_dir, None)


def count_cpus():
    """Has os.cpu_count() tell the job's CPUs, not the host's: before 3.13 Python knows no PYTHON_CPU_COUNT."""
    import os
    import sys

    count = os.environ.get("PYTHON_CPU_COUNT", "")
    if sys.version_info < (3, 13) and count.isdigit():
        number = int(count)

        def cpu_count():
            return number

        cpu_count.__module__ = "os"
        os.cpu_count = cpu_count


def freeze_start_up(before, spared):
    """Spares the interpreter at its end the search for garbage in what it made so far: 2 ms, more after a preload.

    Nor need it take that apart, 1 ms, or 13 for pandas: a frozen list that holds itself is never
    collected. A module that was there `before` the preload is taken apart where the code adds to it.

    The names of __main__ stay out of it, as the code's last objects go with them: an empty dict is
    not tracked, so not frozen, and tracked again with its first entry. Where it is, nothing is frozen.
    """
    import gc
    import sys

    names = sys.modules["__main__"].__dict__
    kept = dict(names)
    names.clear()
    gc.collect()
    if not gc.is_tracked(names):
        main = sys.modules["__main__"]
        forever = [found for found in gc.get_objects() if found is not main]
        forever.append(forever)
        gc.freeze()
        for name, module in sys.modules.items():
            if name not in ("sys", "builtins", "__main__", "sitecustomize", "gc"):
                names_of = getattr(module, "__dict__", None) if name in before else None
                spared.append((name, names_of, len(names_of or ())))
    names.update(kept)
    del sys.modules["gc"]


def add_packages():
    """Has the job's own packages come before the image's, here and in the processes it starts."""
    import os
    import site
    import sys

    if not os.path.isdir("/packages/lib"):
        return
    os.environ["PYTHONUSERBASE"] = "/packages"
    site.USER_BASE = site.USER_SITE = None
    folder = site.getusersitepackages()
    images = [path for path in site.getsitepackages() if path in sys.path]
    at = min(map(sys.path.index, images), default=len(sys.path))
    behind = sys.path[at:]
    del sys.path[at:]
    site.addsitedir(folder)
    sys.path += [path for path in behind if path not in sys.path]


wait_for_go(*report_exception_at_exit())
import sitecustomize  # noqa: E402,F401  the image's own, if there is one
