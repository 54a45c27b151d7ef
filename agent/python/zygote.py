"""Runs in a zygote, as root of its user namespace, from its first exec to its end after 1,000 jobs or 10 minutes.

The interpreter that the gate makes import the preload list, and that then forks jobs. The code of a job runs in it, so
it leaves nothing in sys.modules, and this module is never there.
"""

codes = {}  # of the modules that fork_jobs loads, by name


def begin(compiled, folder, settings, *own):
    """Writes the gate, which Python imports when it starts, and becomes the zygote. `compiled` are all modules by name;
    fork_jobs gets the others, and `own`: which of them to load at once, and what serve_mother gets.
    """
    import marshal
    import os
    import sys

    gate, zygote = compiled.pop("gate"), compiled.pop("zygote")
    settings = (*settings, (zygote, tuple(compiled.items()), own))
    code = gate.replace(co_consts=tuple([settings if value == "settings" else value for value in gate.co_consts]))
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    with open(folder + "/sitecustomize.pyc", "wb") as file:
        file.write(magic + bytes(12) + marshal.dumps(code))  # its form: PEP 552
    os.execvp("python3", ["python3", "/code/main.py"])


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


def load(name):
    import sys

    module = sys.modules[name] = type(sys)(name)
    exec(codes[name], module.__dict__)
    return module


def fork_jobs(known, seed_anew, took_ms, go_fd, tell_fd, modules, own):
    """Forks at each request of the mother. Returns only in the interpreters of jobs: removes what was loaded for PID 1.
    `known` is what there was before: modules, and importers.
    """
    import sys

    # A search for garbage that finds a dict empty stops tracking it. So gc.freeze leaves it out: see freeze_start_up.
    main = sys.modules["__main__"].__dict__
    entries = dict(main)
    main.clear()
    codes.update(modules)
    at_once, *own = own
    for name in at_once:
        load(name)
    sys.modules["forks"].serve_mother(load, codes, took_ms, go_fd, tell_fd, *own)
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
