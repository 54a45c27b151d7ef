# Runs in a zygote, as root of its user namespace, from its exec to its end after 1,000 jobs or 10 minutes.
# Comes before forked.py and gate.py: the interpreter that has imported the preload list waits here and
# forks. Each fork becomes PID 1 of a job (enter.py) and runs the supervisor; the supervisor's own
# child returns to the gate.

# The agent puts the values where "forks" stands below: modules by name, where begin.py puts their bytecode, the filter
# of the code, the most memory in bytes that a job may inherit, and the modules that are loaded when they are needed.
modules, code_filter, most_inherited, apart = "forks"
program = dict(modules)


def import_for_forks():
    """Returns what there was before fork_jobs: modules, and importers."""
    import sys

    return set(sys.modules), set(sys.path_importer_cache)


def serve_mother(took_ms):
    import _signal
    import _socket
    import gc
    import posix
    import resource
    import sys

    def load(name):
        module = sys.modules[name] = type(sys)(name)
        module.load = load
        exec(program[name], module.__dict__)
        return module

    def find_problem():
        """Why a fork would not be like an interpreter that has just imported the preload list; or ""."""
        with open("/proc/self/maps") as maps:
            if any(line.split()[1] in ("rw-s", "-w-s", "rwxs") for line in maps):
                return "a preloaded module shares memory"
        opened = {int(fd) for fd in posix.listdir("/proc/self/fd")}
        # One more lists the folder.
        if len(opened - {0, 1, 2, control_fd}) > 1:
            return "a preloaded module keeps files open"
        threading = sys.modules.get("threading")
        if threading and threading.active_count() > 1:
            return "a preloaded module has started a thread"
        with open("/proc/self/statm") as sizes:
            inherited = int(sizes.read().split()[1]) * resource.getpagesize()
        if inherited > most_inherited:
            return "what is preloaded takes %d MiB, more than half of memory_limit" % (inherited >> 20)
        return ""

    class Forked(BaseException):
        pass

    class Forker:
        """Starts the interpreter of a job, for the supervisor."""

        cells, serve = program["cells"], program["serve"]

        def start(self, go, tell, out, err, groups=()):
            if posix.fork():
                return
            become_interpreter(blocked, groups, go, tell, out, err)  # noqa: F821
            raise Forked

        def release(self):
            pass

    for name in program:
        if name not in apart:
            load(name)
    enter, kernel, supervisor = map(sys.modules.get, ("enter", "kernel", "supervisor"))
    problem = find_problem()
    blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    # The kernel then reaps every child.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    # The first fork is a trial: libraries with fork handlers end their threads at it, and an interpreter that
    # cannot fork fails here, before it is reported as ready.
    if posix.fork() == 0:
        posix._exit(0)
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, control_fd)
    plan = enter.Plan()
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
    posix.close(null)
    # Jobs do not have the files that an import has written: such imports are not learned (learn-preloads.ts).
    if posix.listdir("/tmp") or posix.listdir("/output"):
        took_ms = {}
    control.send(sys.modules["link"].to_json({"problem": problem, "took_ms": took_ms}))
    gc.collect()
    kernel.use_large_pages()
    while True:
        request, rights, _, _ = control.recvmsg(enter.REQUEST.size, _socket.CMSG_SPACE(8))
        if not request:
            posix._exit(0)
        data = rights[0][2]
        stream, stderr = (int.from_bytes(data[i : i + 4], sys.byteorder) for i in (0, 4))
        try:
            pid = kernel.fork_into(kernel.JOB_NAMESPACES)
            if pid == 0:
                break
            enter.give_ids(pid, request)
        except OSError:
            pass  # the mother reads the end of the job's stream, or the agent gives it up
        posix.close(stream)
        posix.close(stderr)
    try:
        # A preload may have blocked signals. PID 1 needs them, above all the one for the end of a child.
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        enter.enter(plan, request, stream, stderr, code_filter)
        kernel.drop_rights()
        supervisor.Supervisor(Forker()).run()
        posix._exit(0)
    except Forked:
        pass
    except BaseException as error:
        words = ("%s: %s" % (type(error).__name__, error)).encode()
        try:
            posix.write(stderr, words)
        except OSError:
            posix.write(2, words)
        posix._exit(1)
