# Runs in the code's interpreter and in a zygote, as uid 1000 or root, from its start to the code's first line.
# The job's interpreter imports this file as `sitecustomize` when it starts, and waits here for the
# job. It leaves nothing that the code could find: modules, paths, __main__, sys.argv, frames and
# tracebacks are those of a fresh interpreter.

# Values take the place of "settings", by _write_gate of supervisor.py or begin of zygote.py. The last one is None, or in
# a zygote the bytecode of zygote.py and what fork_jobs gets.
go_fd, tell_fd, gate_dir, python_path, preload, of_zygote = "settings"


def report_exception_at_exit():
    """Makes the interpreter report, as its last act, which exception ended the code.

    Returns two lists and the report. The first has one pid: that of the process whose exception it reports;
    wait_for_go sets it anew, because a zygote forks that process. freeze_start_up fills
    the second.

    atexit calls the report: the code may replace an excepthook, and with an audit hook each id()
    takes 180 ns instead of 40. Before 3.10 it is an audit hook, because atexit's functions are lost
    with its module.
    """
    import posix
    import sys

    write, getpid, job, fd = posix.write, posix.getpid, [posix.getpid()], tell_fd
    mro_of, class_of, text, error_class = type.__dict__["__mro__"].__get__, type, str, BaseException
    length, kept, modules, frame = len, [], sys.modules, sys._getframe

    def send_at_once(kind, body):
        write(fd, kind + length(body).to_bytes(4, "big") + body)

    def report(most=1000, send=send_at_once):
        try:
            error = sys.last_value
            if getpid() != job[0]:
                return
            classes = ["%s.%s" % (c.__module__, c.__qualname__) for c in mro_of(class_of(error))]
            names = "\0".join([name[:100] for name in classes[:1] + classes[1:][-15:]])
            body = "%s\0\0%s" % (names, text(error)[:most])
            send(b"e", body.encode("utf-8", "backslashreplace")[: 4 * most])
        except error_class:
            pass

    if sys.version_info < (3, 10):
        sys.addaudithook(lambda event, _: event == "sys.excepthook" and report())
        return job, kept, report
    import atexit
    import gc

    created_since, unfreeze, identity, audit = gc.get_objects, gc.unfreeze, id, sys.audit
    namespace_of = type.__dict__["__dict__"].__get__

    def end():
        report()
        if is_audited() or is_called() or may_finalize():
            kept.clear()
            unfreeze()
        # The interpreter does not take apart what is not in sys.modules.
        for name, _ in kept[:-1]:
            modules.pop(name, None)

    def is_audited():
        """Whether the code's audit hooks would hear of the next two. No hook hears of this: it fails before,
        and only if there is one.
        """
        try:
            return audit(None) is not None
        except TypeError:
            return True

    def is_called():
        """Whether the code itself calls the atexit functions, before the interpreter's end."""
        try:
            return frame(2) is not None
        except ValueError:
            return False

    def may_finalize():
        """Whether an object that the code created may have a finalizer. It would not run if
        something frozen refers to it.
        """
        created = created_since()
        if length(created) > 10_000:
            return True
        classes = {}
        for found in created:
            its_class = class_of(found)
            classes[identity(its_class)] = its_class
            if class_of in mro_of(its_class):
                classes[identity(found)] = found
        for found in classes.values():
            for base in mro_of(found):
                if "__del__" in namespace_of(base):
                    return True
        return False

    atexit.register(end)
    del sys.modules["atexit"], sys.modules["gc"]
    return job, kept, report


def wait_for_go(job, kept, report):
    import _signal
    import posix
    import sys
    import time

    took_ms = {}

    def import_ahead(name):
        began = time.monotonic()
        try:
            __import__(name)
        except BaseException as error:
            return "%s\0%s: %s\0" % (name, type(error).__name__, error)
        took = int(1000 * (time.monotonic() - began))
        # Leaves out a module whose import is not clean: it is not learned (backends/zygotes.ts).
        if watch and watch.is_clean():
            took_ms[name] = took
        return ""

    forget_gate()
    count_cpus()
    watch = zygote and zygote.Watch()
    failures = "".join(import_ahead(name) for name in preload)
    # Makes the finders read the folders of sys.path before the job arrives.
    sys.meta_path[-1].find_spec("-", None)
    known = seed_anew = None
    if watch:
        known, seed_anew = (set(sys.modules), set(sys.path_importer_cache)), watch.end()
    if sys.version_info >= (3, 10):
        freeze_start_up(kept)
    if watch:
        watch = None
        zygote.fork_jobs(known, seed_anew, took_ms, go_fd, tell_fd, *of_zygote[1:])
    job[0] = posix.getpid()
    # A call of a session may be interrupted before serve.py listens.
    handler = _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    told = "%d\0%d\0%s" % (job[0], time.process_time_ns(), failures)
    posix.write(tell_fd, told.encode("utf-8", "replace")[:4096])
    word = posix.read(go_fd, 1)
    if not word:
        posix._exit(1)
    modules = []
    while word == b"c":
        modules.append(receive(posix.read).partition(b"\0"))
        word = posix.read(go_fd, 1)
    # With "t", answers to calls come over it; with "s", the words for the calls of a session.
    stays = word in (b"t", b"s")
    if word != b"s":
        _signal.signal(_signal.SIGINT, handler)
    if stays:
        posix.set_inheritable(go_fd, False)
    else:
        posix.close(go_fd)
    if word in (b"i", b"t"):
        take_inputs()
    add_packages()
    posix.set_inheritable(tell_fd, False)
    if modules:
        begin_cells(modules, report, go_fd if stays else None)
    else:
        posix.set_blocking(tell_fd, False)
    del sys.modules["sitecustomize"]


def receive(read):
    """What PID 1 sends before the word to go: the length in 4 bytes, big-endian, and as many bytes."""
    size, data = int.from_bytes(read(go_fd, 4), "big"), b""
    while len(data) < size:
        data += read(go_fd, size - len(data))
    return data


def begin_cells(modules, report, kept_fd):
    """Loads tools.py, cells.py and, in a session, serve.py: each can import those before it. They have their own builtins
    and are never in sys.modules. The last one runs the code.
    """
    import builtins
    import marshal
    import sys

    own, found = dict(vars(builtins)), {}
    import_other = own["__import__"]

    def import_module(name, *rest):
        return found[name] if name in found else import_other(name, *rest)

    own["__import__"] = import_module
    for name, _, code in modules:
        module = found[name.decode()] = type(sys)(name.decode())
        module.__builtins__ = own
        exec(marshal.loads(code), module.__dict__)
    own["__import__"] = import_other
    found["cells"].begin(module.run, tell_fd, report, kept_fd)


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


def freeze_start_up(kept):
    """Keeps what exists so far out of the searches for garbage, above all those at the interpreter's
    end. Saves 5 ms of CPU time, or 65 ms after a preload of pandas.

    Puts the modules into `kept`, by name. It refers to itself, so it lives until the process ends,
    and the modules with it. A fork would otherwise copy most of its memory to take them apart:
    35 ms after a preload of pandas. The names of this file, which in a fork have PID 1's code, are kept likewise.

    The names of __main__ stay out of it: the interpreter deletes the code's last objects with them.
    While the dict is empty it is not tracked, so it is not frozen. Where Python tracks empty dicts,
    nothing is frozen.
    """
    import gc
    import sys

    names = sys.modules["__main__"].__dict__
    entries = dict(names)
    names.clear()
    gc.collect()
    if not gc.is_tracked(names):
        own = {"sys", "builtins", "__main__", "sitecustomize", "gc"}
        kept += [each for each in sys.modules.items() if each[0] not in own]
        kept.append(("", globals()))
        kept.append(kept)
        gc.freeze()
    names.update(entries)
    del sys.modules["gc"]


def take_inputs():
    """Gives the code its stdin and arguments; their files are there where it has them, see job.py."""
    import os
    import posix
    import sys

    def open_input(path):
        try:
            return posix.open(path, posix.O_RDONLY)
        except FileNotFoundError:
            return None

    stdin = open_input("/input/_stdin")
    if stdin is not None and stdin != 0:
        posix.dup2(stdin, 0)
        posix.close(stdin)
    source = open_input("/input/_args")
    if source is None:
        return
    told = b"".join(iter(lambda: posix.read(source, 65536), b""))
    posix.close(source)
    args = [os.fsdecode(arg) for arg in told.split(b"\0")[:-1]]
    sys.argv += args
    if sys.version_info >= (3, 10):
        sys.orig_argv += args


def add_packages():
    """Puts the job's packages before the image's, here and in the processes that it starts. Between them are those of
    a job type that a tenant has made: no process of root looks there (build.py).
    """
    import os

    roots = [root for root in ("/packages", "/opt/airlock") if os.path.isdir(root + "/lib")]
    folders = [add_folder(root) for root in roots]
    if len(folders) == 2:
        os.environ["PYTHONUSERBASE"] = roots[0]
        python_path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = ":".join(filter(None, [python_path, folders[1]]))


def add_folder(root):
    import os
    import site
    import sys

    os.environ["PYTHONUSERBASE"] = root
    site.USER_BASE = site.USER_SITE = None
    folder = site.getusersitepackages()
    images = [path for path in site.getsitepackages() if path in sys.path]
    at = min(map(sys.path.index, images), default=len(sys.path))
    behind = sys.path[at:]
    del sys.path[at:]
    site.addsitedir(folder)
    sys.path += [path for path in behind if path not in sys.path]
    return folder


def load_zygote(code, *_):
    import sys

    module = type(sys)("zygote")
    exec(code, module.__dict__)
    return module


zygote = of_zygote and load_zygote(*of_zygote)
wait_for_go(*report_exception_at_exit())
import sitecustomize  # noqa: E402,F401  the image's own, if there is one
