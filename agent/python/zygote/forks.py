# Runs in a zygote, as root of its user namespace, from its exec to its end after 1,000 jobs or 10 minutes.
# Comes before forked.py and gate.py: the interpreter that has imported the preload list waits here and
# forks. Each fork becomes PID 1 of a job (enter.py) and runs the supervisor; the supervisor's own
# child returns to the gate.

# The agent puts the values where "forks" stands below: modules by name, where begin.py puts their bytecode, the filter
# of the code, the most memory in bytes that a job may inherit, and the modules that are loaded when they are needed.
modules, code_filter, most_inherited, apart = "forks"
program = dict(modules)


class Watch:
    """Watches the imports of the preload list: what they leave that forks lack, what they make of random bytes, and
    which generators seed themselves with such bytes. A generator that an import seeds with a number stays as it is.
    """

    def __init__(self):
        import os
        import sys

        # Bytes that os.urandom has returned: all of them, and those since the last import.
        self._given, self._fresh = set(), set()
        # Weak references to instances of random.Random that have seeded themselves, and the state of each.
        self._random, self._randoms = None, []
        # numpy's seed sequences, bit generators and RandomStates; states of bit generators by id.
        self._numpy, self._states = ([], [], []), {}
        os.urandom = self._urandom
        if "random" in sys.modules:
            self._follow(sys.modules["random"])
        else:
            sys.meta_path.insert(0, self)
        self._left = self._look()

    def _urandom(self, size):
        import posix

        data = posix.urandom(size)
        self._given.add(data)
        # scipy draws the examples of its documentation at random. If that counted, scikit-learn would not be learned.
        if not _importer(1).startswith("scipy."):
            self._fresh.add(data)
        return data

    def find_spec(self, name, path=None, target=None):
        """Begins to follow the module random when its import ends."""
        import sys

        if name != "random":
            return None
        sys.meta_path.remove(self)
        spec = sys.meta_path[-1].find_spec(name, path, target)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._follow(module)

    def _follow(self, random):
        from _weakref import ref

        self._random, self._seed = random.Random, random.Random.seed
        self._of_all = random._inst  # Python seeds it anew in each fork

        def seed(generator, a=None, version=2):
            self._seed(generator, a, version)
            self._randoms = [each for each in self._randoms if each[0]() is not generator]
            # tempfile makes a new generator in each process; fork_jobs seeds sympy's.
            if a is None and _importer(1) not in ("tempfile", "sympy.core.symbol"):
                self._randoms.append([ref(generator), self._state_of(generator)])

        random.Random.seed = seed
        self._randoms.append([ref(self._of_all), self._state_of(self._of_all)])

    def _state_of(self, generator):
        return generator and hash(self._random.getstate(generator))

    def is_clean(self):
        """Whether a fork is as it would be if it had itself imported what was imported since the last call."""
        before, self._left = self._left, self._look()
        # A list, so that all of them run: each remembers its state for the next call.
        return not any([before != self._left, self._uses_random(), self._uses_bytes()])

    def _look(self):
        import _signal
        import posix

        def read(path):
            with open(path) as file:
                return file.read()

        try:
            posix.waitid(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
            has_children = True
        except ChildProcessError:
            has_children = False
        return (
            # Bytes written, above all to stdout and stderr.
            [line for line in read("/proc/self/io").split("\n") if line.startswith("wchar")],
            [posix.listdir(folder) for folder in ("/tmp", "/output", "/dev/shm")],
            [read("/proc/sysvipc/" + name) for name in ("shm", "sem", "msg")],
            [_signal.getitimer(timer)[0] > 0 for timer in (0, 1, 2)],
            _signal.getsignal(_signal.SIGCHLD),
            posix.getcwd(),
            has_children,
        )

    def _uses_random(self):
        """Whether a generator has been used, or is gone, so that nobody can know whether it was used."""
        before = [state for _, state in self._randoms]
        self._randoms = [[generator, self._state_of(generator())] for generator, _ in self._randoms]
        return before != [state for _, state in self._randoms]

    def _uses_bytes(self):
        """Whether random bytes have become anything but the seed of a numpy generator, or such a generator was used."""
        import sys

        fresh, self._fresh = self._fresh, set()
        process = sys.modules.get("multiprocessing.process")
        if process:
            fresh.discard(bytes(process.current_process().authkey))  # see fork_jobs
        if fresh and "numpy.random.mtrand" in sys.modules:
            self._find_numpy()
        sequences, bits, _ = self._numpy
        before = [self._states.get(id(each)) or _plain(type(each)(each._seed_seq).state) for each in bits]
        states = [_plain(each.state) for each in bits]
        self._states = {id(each): state for each, state in zip(bits, states)}
        return before != states or bool(fresh - set(map(_bytes_of, sequences)))

    def _find_numpy(self):
        import gc
        import sys

        bits, legacy = (sys.modules["numpy.random." + name] for name in ("bit_generator", "mtrand"))
        kinds = bits.SeedSequence, bits.BitGenerator, legacy.RandomState
        found = [[], [], []]
        for each in gc.get_objects():
            for kind, its in zip(kinds, found):
                if kind in type(each).__mro__:
                    its.append(each)
        sequences = [each for each in found[0] if _bytes_of(each) in self._given]
        ours = set(map(id, sequences))
        bits = [each for each in found[1] if id(each._seed_seq) in ours]
        states = [each for each in found[2] if each._bit_generator in bits]
        self._numpy = sequences, bits, states

    def end(self):
        """Returns a function that seeds the generators anew."""
        import os
        import posix
        import sys

        ours, os.urandom = os.urandom, posix.urandom
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for name in [name for name, value in names.items() if value is ours]:
                names[name] = posix.urandom
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        randoms = []
        if self._random:
            seed = self._random.seed = self._seed
            randoms = [each() for each, _ in self._randoms if each() not in (None, self._of_all)]
        sequences, bits, states = self._numpy
        legacy = sys.modules.get("numpy.random.mtrand")
        if legacy and legacy._rand not in states:
            states.append(legacy._rand)
        bits = [each for each in bits if each not in [state._bit_generator for state in states]]
        torch = sys.modules.get("torch")

        def seed_anew():
            for each in randoms:
                seed(each)
            entropies = {}
            for each in sequences:
                entropy = entropies.setdefault(each.entropy, int.from_bytes(posix.urandom(16), "big"))
                children = each.n_children_spawned
                each.__init__(entropy, spawn_key=each.spawn_key, pool_size=each.pool_size, n_children_spawned=children)
            for each in bits:
                each.state = type(each)(each._seed_seq).state
            for each in states:
                each.seed()
            if torch:
                torch.default_generator.seed()

        return seed_anew


def _importer(depth):
    """The name of the module that calls random or secrets, `depth` frames above the caller."""
    import sys

    frame, names = sys._getframe(depth + 1), ("random", "secrets")
    while frame and frame.f_globals.get("__name__") in names:
        frame = frame.f_back
    return (frame and frame.f_globals.get("__name__")) or ""


def _bytes_of(sequence):
    """The bytes that os.urandom returned for a seed sequence that seeded itself."""
    entropy = sequence.entropy
    return entropy.to_bytes(16, "big") if type(entropy) is int and 0 <= entropy < 1 << 128 else None


def _plain(state):
    """The state of a numpy generator in a form that can be compared."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


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
