# Comes before gate.py in a zygote: the interpreter that has imported the preload list waits here and
# forks. Each fork becomes PID 1 of a job (enter.py) and runs the supervisor; the supervisor's own
# child returns to the gate, without anything of what is loaded here.

# The agent puts the values where "forks" stands below: sources by module name, the filter of the code,
# and the most memory in bytes that a job may inherit.
program, code_filter, most_inherited = "forks"


def import_for_forks():
    """Returns what there was before fork_jobs: modules, and importers."""
    import sys

    return set(sys.modules), set(sys.path_importer_cache)


def fork_jobs(known):
    """Forks at each request of the mother and returns in the interpreters of jobs, there alone."""
    import sys

    # Empty and then looked at by a search for garbage, it is not tracked, and so not frozen: see freeze_start_up.
    main = sys.modules["__main__"].__dict__
    entries = dict(main)
    main.clear()
    serve_mother()
    import gc

    for record, names in zip((sys.modules, sys.path_importer_cache), known):
        for name in set(record) - names:
            del record[name]
    # What is loaded in here is kept out of the searches for garbage. To end it now would copy most of the memory
    # that the fork shares: 1 ms.
    if sys.version_info >= (3, 10) and not gc.is_tracked(main):
        gc.freeze()
    else:
        gc.collect()
    main.update(entries)
    # Python's own generator, OpenSSL's and the C library's notice a fork; numpy's and this key do not.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        process = sys.modules["multiprocessing.process"]
        process.current_process().authkey = sys.modules["posix"].urandom(32)


def serve_mother():
    import _signal
    import _socket
    import gc
    import posix
    import resource
    import sys

    def load(name):
        module = sys.modules[name] = type(sys)(name)
        module.load = load
        exec(compile(program[name], "airlock/%s.py" % name, "exec"), module.__dict__)
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

        def start(self, go, tell, out, err):
            if posix.fork():
                return
            become_interpreter(go, tell, out, err)
            raise Forked

        def release(self):
            pass

    def become_interpreter(go, tell, out, err):
        posix.setsid()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
        job_module.prefer_for_oom()
        null = posix.open("/dev/null", posix.O_RDONLY)
        for fd, target in ((go, go_fd), (tell, tell_fd), (out, 1), (err, 2), (null, 0)):
            posix.dup2(fd, target)
        kernel.close_descriptors_except({0, 1, 2, go_fd, tell_fd})
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.set_wakeup_fd(-1)
        privileges.become_unprivileged()
        privileges.open_memory()
        posix.chdir("/output")

    for name in program:
        if name != "collect":
            load(name)
    enter, job_module, kernel, privileges, supervisor = map(
        sys.modules.get, ("enter", "job", "kernel", "privileges", "supervisor")
    )
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
    control.send(sys.modules["link"].to_json({"problem": problem}))
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
        privileges.drop_rights()
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
