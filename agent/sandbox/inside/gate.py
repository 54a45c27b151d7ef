# The job's interpreter finds this file as `sitecustomize` while it starts, and waits here for the
# job. It leaves nothing that the code would meet: modules, paths, __main__, sys.argv, frames and
# tracebacks are those of a fresh interpreter.
# With a control_fd zygote.py is there, too.

# The supervisor puts the values where "settings" stands; see job.py.
go_fd, tell_fd, control_fd, gate_dir, python_path, preload = "settings"


def report_exception_at_exit():
    """Makes the interpreter report, as its last act, which exception ended the code.

    Returns a list of one pid, the process whose exception it is, and two to fill, or None: see
    freeze_start_up.

    An excepthook is for the code to replace, and an audit hook makes each id() take 180 ns instead
    of 40, so that it serves only before 3.10, where what atexit knows dies with its module.
    """
    import gc
    import posix
    import sys

    write, getpid, job, fd = posix.write, posix.getpid, [posix.getpid()], tell_fd
    made_since, thaw, frame, identity = gc.get_objects, gc.unfreeze, sys._getframe, id
    mro_of, class_of, text, error_class = type.__dict__["__mro__"].__get__, type, str, BaseException
    namespace_of = type.__dict__["__dict__"].__get__
    length, spared, forever, modules = len, [], [], sys.modules

    def end():
        report()
        if is_called() or has_finalizers():
            forever.clear()
            thaw()
            return
        # An entry that is no longer a module is not taken apart.
        for name in spared:
            modules.pop(name, None)

    def is_called():
        """Whether the code itself runs the atexit functions, before the interpreter's end."""
        try:
            return frame(2) is not None
        except ValueError:
            return False

    def has_finalizers():
        """Whether any object that the code created may have a finalizer."""
        made = made_since()
        if length(made) > 10_000:
            return True
        kinds = {}
        for found in made:
            kind = class_of(found)
            kinds[identity(kind)] = kind
            if class_of in mro_of(kind):
                kinds[identity(found)] = found
        for kind in kinds.values():
            for base in mro_of(kind):
                if "__del__" in namespace_of(base):
                    return True
        return False

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

    del sys.modules["gc"]
    # Nothing of freeze_start_up, as no function is called at the end.
    if sys.version_info < (3, 10):
        sys.addaudithook(lambda event, _: event == "sys.excepthook" and report())
        return job, None, None
    import atexit

    atexit.register(end)
    del sys.modules["atexit"]
    return job, spared, forever


def wait_for_go(job, spared, forever):
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
    failures = "".join(import_ahead(name) for name in preload)
    # Makes the finders read the folders of sys.path before the job arrives.
    sys.meta_path[-1].find_spec("-")
    known = None if control_fd is None else import_for_forks()  # noqa: F821
    if forever is not None:
        freeze_start_up(spared, forever)
    traces = "" if control_fd is None else fork_jobs(known)  # noqa: F821
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
    """Makes os.cpu_count() return the job's CPUs, not the host's: PYTHON_CPU_COUNT works only from
    Python 3.13 on.
    """
    import os
    import sys

    count = os.environ.get("PYTHON_CPU_COUNT", "")
    if sys.version_info < (3, 13) and count.isdigit():
        number = int(count)

        def cpu_count():
            return number

        cpu_count.__module__ = "os"
        os.cpu_count = cpu_count


def freeze_start_up(spared, forever):
    """Spares the interpreter at its end the search for garbage in what it made so far: 2 ms, more after a preload.

    Nor need it take that apart, 1 ms, or 13 for pandas: no end reaches the modules that are `spared`,
    nor what is in `forever`, a frozen list that holds itself.

    Where anything that the code made has a finalizer none of this holds, and the end is as ever: one
    would not run if a module that is spared, or a frozen cycle, refers to it.

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
        own = {"sys", "builtins", "__main__", "sitecustomize", "gc"}
        spared += [name for name in sys.modules if name not in own]
        main = sys.modules["__main__"]
        forever += [found for found in gc.get_objects() if found is not main]
        forever.append(forever)
        gc.freeze()
    names.update(kept)
    del sys.modules["gc"]


def add_packages():
    """Puts the job's packages before the image's, here and in the processes that it starts."""
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
