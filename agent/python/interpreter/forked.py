# Runs in the code's interpreter, as root and then uid 1000, from its fork to the first line of the code.
# Comes between forks.py and gate.py: makes a fork the interpreter of a job, and removes what its zygote has loaded
# for PID 1.


def fork_jobs(known, seed_anew, took_ms):
    """Forks at each request of the mother. Returns only in the interpreters of jobs."""
    import sys

    # A search for garbage that finds a dict empty stops tracking it. So gc.freeze leaves it out: see freeze_start_up.
    main = sys.modules["__main__"].__dict__
    entries = dict(main)
    main.clear()
    serve_mother(took_ms)  # noqa: F821  see forks.py
    import gc

    for record, names in zip((sys.modules, sys.path_importer_cache), known):
        for name in set(record) - names:
            del record[name]
    # Searches for garbage leave out what is loaded so far. To free it here would copy most of the memory that the fork
    # shares, which takes 1 ms.
    if sys.version_info >= (3, 10) and not gc.is_tracked(main):
        gc.freeze()
    else:
        gc.collect()
    main.update(entries)
    # The other generators, those of random itself, OpenSSL and the C library, notice a fork.
    seed_anew()
    if "multiprocessing.process" in sys.modules:
        process = sys.modules["multiprocessing.process"]
        process.current_process().authkey = sys.modules["posix"].urandom(32)
    if "sympy.core.symbol" in sys.modules:
        dummy = sys.modules["sympy.core.symbol"].Dummy
        dummy._prng.seed()
        dummy._base_dummy_index = dummy._prng.randint(10**6, 9 * 10**6)
    # Times of log records are relative to this one.
    if "logging" in sys.modules:
        logging, time = sys.modules["logging"], sys.modules["time"]
        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()


def become_interpreter(blocked, groups, go, tell, out, err):
    import _signal
    import posix
    import sys

    kernel, job = sys.modules["kernel"], sys.modules["job"]
    posix.setsid()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
    job.prefer_for_oom()
    null = posix.open("/dev/null", posix.O_RDONLY)
    for fd, target in ((go, go_fd), (tell, tell_fd), (out, 1), (err, 2), (null, 0)):
        posix.dup2(fd, target)
    kernel.close_descriptors_except({0, 1, 2, go_fd, tell_fd})
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.set_wakeup_fd(-1)
    kernel.become_unprivileged(groups)
    kernel.open_memory()
    posix.chdir("/output")
