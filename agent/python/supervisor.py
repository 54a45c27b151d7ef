"""Runs in PID 1 of a sandbox, as root of the sandbox, from its start to its end.

Runs one job and reports it to the agent, or becomes a Session. See link.py for the frames. Any error in here ends
PID 1, and with it every process of the container. What begins it is main() in a container of the job's own, and
forks.py in a fork.

Below it: what the sandbox uses, such as CPU time, sockets, locks of files, and memory that the OOM killer had to free."""

import _signal as signal  # the module around it imports enum, which takes longer than all of PID 1
import marshal
import os
import resource
import select
import sys
import time

from job import INPUTS, Job, Stream, exec_as_code, exit_of, file_limits, fork_to, prepare_program
from kernel import (
    become_unprivileged,
    begin_file,
    count_oom_kills,
    harden_supervisor,
    read_lines,
    remove_ipc_of_code,
    write_file,
)
from link import Inbox, Outbox, from_numbers

_REAP_LIMIT_S = 5
# The collector takes up to 1 MiB of the memory that the code has left free.
_COLLECTOR_BYTES = 4 << 20
# Between two looks at the number of sockets, where there were few, and where there were many.
_LOOK_S, _SOON_S = 0.02, 0.005
# Counting locks holds up every lock of the host for up to 30 ms. In this time in the kernel, code makes some 10 MiB.
_LOCKS_AFTER_MS, _MOST_LOCKS = 50, 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The same between calls while nothing runs.
_IDLE_S = 0.25
GATE_DIR = "/code/.gate"
_GATE = GATE_DIR + "/sitecustomize.pyc"


class Supervisor:
    # What programs get instead of Python's code.
    stream, env = Stream, os.environ

    def __init__(self, interpreter):
        self.inbox = Inbox(0)
        self.outbox = Outbox(1)
        self.packages = self.input_file = self.program = None
        self.code_file = "/code/main.py"
        self.interpreter = interpreter
        self.child_events, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.orders = self.exit = self.collector = None
        self.may_go = self.cancelled = self.childless = False
        self.max_rss_kb = 0
        self.watch = Watch()
        self.job = Job(interpreter.start)

    def run(self):
        self.get_ready()
        while not self.may_go:
            self.wait_and_handle()
            if self.exit is not None:
                # Ends the container: the agent then runs the job in another one.
                raise SystemExit("the interpreter ended before its job came")
        self.run_job()

    def run_job(self):
        ending = self.prepare()
        oom_kills = count_oom_kills()
        for stream in self.job.streams:
            stream.begin(self.orders["stream_bytes"])
        self.cpu_before_ms = children_cpu_ms() + self.job.start_cpu_ns / 1e6
        self.others_cpu_before_ms = others_cpu_ms()
        started = time.monotonic()
        if ending is None:
            self.start_job()
            self.tell_start()
            ending = self.wait_for_end(started + self.orders["timeout_ms"] / 1000)
        ended_by_itself = self.exit is not None
        self.settle()
        self.report(ending, started, ended_by_itself and count_oom_kills() > oom_kills)
        self.collect()

    def start_job(self):
        self.job.go(self.inputs, self.orders)

    def prepare(self):
        """Returns how the job ended if it needs no run."""
        return None if self.program is None else prepare_program(self)

    def tell_start(self):
        """Before the code runs: if the whole container dies after this, the code is the cause."""
        if not self.outbox.patient:
            self.outbox.put(b"S")
            self.outbox.write()
            self.outbox.patient = True

    def get_ready(self):
        while self.job.state == "starting":
            self.wait_and_handle()
        if self.job.state == "failed":
            self.fail("the interpreter ended before it was ready")
        self.interpreter.release()
        version = "%d.%d.%d" % sys.version_info[:3]
        self.outbox.put_json(b"R", {"python_version": version, "preload_errors": self.job.preload_errors})

    def fail(self, message):
        self.kill_all()
        for stream in self.job.streams:
            stream.drain(self.outbox)
        output = b"".join(stream.early for stream in self.job.streams)
        self.outbox.put_json(b"F", {"message": message, "output": output.decode("utf-8", "replace")})
        self.flush()
        raise SystemExit(1)

    def wait_for_end(self, deadline):
        """Waits for the job's end, or forces it."""
        watch = self.watch.begin(self.orders["max_sockets"])
        while self.exit is None:
            now = time.monotonic()
            until = deadline + (self.job.calls.waited_s() if self.job.calls else 0)
            if self.cancelled or now >= until:
                ending = "cancelled" if self.cancelled else "timeout"
                self.terminate()
                return ending
            excess = watch.look(now) if now >= watch.due else None
            if excess:
                return excess
            self.wait_and_handle(min(watch.due, until))
        return "exited"

    def terminate(self):
        """Asks every process of the job to end, and gives its first process a grace period."""
        self.signal_all(signal.SIGTERM)
        grace_over = time.monotonic() + self.orders["grace_ms"] / 1000
        while self.exit is None and time.monotonic() < grace_over:
            self.wait_and_handle(grace_over)

    def settle(self):
        """Ends what the code left running."""
        self.kill_all()

    def clear(self):
        """Makes room for a program."""
        self.kill_all()
        self.exit = None
        self.childless = False
        self.max_rss_kb = 0

    def kill_all(self):
        """Kills all other processes. The wait is bounded, because a process may be stuck in the kernel."""
        limit = time.monotonic() + _REAP_LIMIT_S
        while not self.childless and time.monotonic() < limit:
            self.signal_all(signal.SIGKILL)
            self.wait_and_handle(time.monotonic() + 0.02)

    def signal_all(self, number):
        try:
            os.kill(-1, number)
        except (ProcessLookupError, PermissionError):
            # Debian 13's AppArmor denies it under root's Podman. The end of PID 1 ends what is left.
            pass

    def report(self, ending, started, out_of_memory):
        ended, status = self.exit or (time.monotonic(), signal.SIGKILL)
        told = self.job.end(self.outbox)
        end = exit_of(status)
        report = {
            "ending": ending,
            **end,
            "out_of_memory": end["exit_signal"] == signal.SIGKILL and out_of_memory,
            **told,
            "wall_ms": max(0.0, ended - started) * 1000,
            "cpu_ms": self.cpu_ms(),
            "max_rss_bytes": self.max_rss_kb * 1024,
            "truncated": [stream.truncated for stream in self.job.streams],
        }
        self.outbox.put_json(b"X", report)

    def cpu_ms(self):
        """CPU time of the job. If a process ignores SIGCHLD, only the cgroup counts its children."""
        waited_for = children_cpu_ms() - self.cpu_before_ms
        return max(0.0, waited_for, others_cpu_ms() - self.others_cpu_before_ms)

    def collect(self):
        """Sends /output from a child with the rights of the code, so that no file can trick root."""
        if not self.has_files():
            self.tell_skipped([])
            return
        self.make_room()
        self.flush()
        os.set_blocking(self.outbox.fd, True)
        self.collector = fork_to(self.send_files)
        self.wait_for_collector()
        os.set_blocking(self.outbox.fd, False)

    def make_room(self):
        """Frees memory for the collector. The size limits of /output, /tmp and /dev/shm leave room. What else outlives
        the code's processes is removed.
        """
        if memory_left() < _COLLECTOR_BYTES:
            remove_ipc_of_code()

    def has_files(self):
        return os.listdir("/output") != []

    def wait_for_collector(self):
        while self.collector is not None:
            self.wait_and_handle()

    def tell_skipped(self, skipped):
        """Ends a job whose files nobody sends."""
        self.outbox.put_json(b"Z", {"result_problem": None, "skipped": skipped})
        self.flush()

    def send_files(self):
        become_unprivileged()
        self.interpreter.load("collector").Collector(self.outbox.fd, *file_limits(self.orders)).run()

    def flush(self):
        self.outbox.patient = False
        while not self.outbox.empty:
            self.wait_and_handle()

    def wait_and_handle(self, until=None):
        """Waits for events, at most until a monotonic time, and handles them."""
        timeout_ms = None if until is None else max(0.0, until - time.monotonic()) * 1000
        handlers = {self.inbox.fd: self.take_orders, self.child_events: self.reap}
        handlers.update(self.to_read())
        poll = select.poll()
        for fd in handlers:
            poll.register(fd, select.POLLIN)
        for source in filter(None, (self.packages, self.job.calls)):
            for fd, events, handler in source.to_poll():
                handlers[fd] = handler
                poll.register(fd, events)
        if not self.outbox.empty:
            delay_ms = self.outbox.delay_ms
            if delay_ms > 0:
                timeout_ms = delay_ms if timeout_ms is None else min(timeout_ms, delay_ms)
            else:
                handlers[self.outbox.fd] = self.outbox.write
                poll.register(self.outbox.fd, select.POLLOUT)
        for fd, _ in poll.poll(timeout_ms):
            handlers[fd]()

    def to_read(self):
        return self.job.to_read(self.outbox)

    def take_orders(self):
        for kind, payload in self.inbox.read():
            self.obey(kind, payload)

    def obey(self, kind, payload):
        if kind == b"J":
            self.inputs = set()
            self.orders = from_numbers(payload)
            if "results" in self.orders:
                self.job.codes = self.interpreter.codes
            write_file(self.code_file, b"")
            write_file("/input/data.json", b"")
        elif kind == b"W":
            os.unlink(self.code_file)
            name, *self.program = payload.split(b"\0")
            self.code_file = b"/code/" + name
            write_file(self.code_file, b"")
        elif kind == b"C":
            write_file(self.code_file, payload, os.O_APPEND)
        elif kind == b"I":
            write_file("/input/data.json", payload, os.O_APPEND)
        elif kind in INPUTS:
            write_file(INPUTS[kind], payload, os.O_APPEND)
            self.inputs.add(INPUTS[kind])
        elif kind == b"G":
            for path in (self.code_file, "/input/data.json", *self.inputs):
                os.chmod(path, 0o444)
            self.may_go = True
        elif kind == b"K":
            self.cancelled = True
        elif kind == b"Y":
            if self.job.calls:  # else it is late: the call of the session has ended
                self.job.calls.take(payload)
        elif kind == b"M":
            self.input_file = begin_file("/input/" + payload.decode(), self.input_file)
        elif kind == b"U":
            while payload:
                payload = payload[os.write(self.input_file, payload) :]
        elif kind == b"B":
            self.interpreter.take_modules(payload)
        elif kind == b"N":
            self.interpreter.load("collector")
            self.__class__ = self.interpreter.load("session").Session
            self.begin(payload)
        elif kind == b"L":
            write_file("/input/_requirements.txt", payload)
        elif kind == b"P":
            self.packages = self.interpreter.begin_packages(self.outbox, payload)
        elif self.packages:
            self.packages.take(kind, payload)

    def reap(self):
        os.read(self.child_events, 4096)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if self.packages and pid == self.packages.pid:
                self.packages.ended(status)
                continue
            self.reaped(pid, status, usage)

    def reaped(self, pid, status, usage):
        if pid == self.collector:
            self.collector = None
            if status != 0:
                raise SystemExit("/output could not be collected")
            return
        self.max_rss_kb = max(self.max_rss_kb, usage.ru_maxrss)
        if pid == self.job.pid:
            self.exit = (time.monotonic(), status)


class Interpreter:
    """An interpreter that runs one job and is started before the job is known.

    `codes` has the bytecode of modules, by name; `load` makes one of them when it is needed.
    """

    def __init__(self, load, codes, preload):
        self.load, self.codes, self._preload = load, codes, preload

    def take_modules(self, payload):
        self.codes.update(marshal.loads(payload))

    def start(self, go, tell, out, err, groups=()):
        """Starts the interpreter, which imports what it preloads and then waits."""
        go_fd, tell_fd = _high_descriptors()
        os.mkdir(GATE_DIR, 0o755)
        python_path = os.environ.get("PYTHONPATH")
        settings = (go_fd, tell_fd, GATE_DIR, python_path, tuple(self._preload), None)
        _write_gate(marshal.loads(self.codes["gate"]), settings)
        try:
            pid = os.fork()
        except OSError:
            self.release()
            raise
        if pid == 0:
            try:
                null = os.open(os.devnull, os.O_RDONLY)
                env = dict(os.environ)
                env.setdefault("PYTHONUNBUFFERED", "1")
                env["PYTHONPATH"] = ":".join(filter(None, [GATE_DIR, python_path]))
                descriptors = {0: null, 1: out, 2: err, go_fd: go, tell_fd: tell}
                exec_as_code(["python3", "/code/main.py"], descriptors, env, groups)
            except BaseException as error:
                os.write(err, repr(error).encode())
                os._exit(127)

    def release(self):
        """Removes what only the start of the interpreter needed."""
        os.unlink(_GATE)
        os.rmdir(GATE_DIR)

    def begin_packages(self, outbox, payload):
        import json

        order = json.loads(payload)
        for name, text in order["modules"].items():
            module = self.load(name, text)
        return module.Packages(outbox, order, count_oom_kills)


class Watch:
    """Looks for what no limit of the kernel counts: sockets, and locks of files. There is one for all calls of a
    session: each may make few locks, and they stay."""

    due = float("inf")
    _looked_ms, _used_ms = None, 0.0

    def begin(self, most_sockets):
        """Starts to look, or goes on. The next look comes soon, also if the last ones were far apart."""
        self._most = most_sockets
        if self._looked_ms is None:
            self._looked_ms = system_ms()
        self.due = min(self.due, time.monotonic() + _LOOK_S)
        return self

    def look(self, now):
        """Returns what there is too much of, or None."""
        sockets = count_sockets() if self._most else 0
        if sockets > self._most:
            return "sockets"
        used_ms = system_ms()
        if used_ms - self._looked_ms > _LOCKS_AFTER_MS:
            self._looked_ms = used_ms
            if has_more_locks(_MOST_LOCKS):
                return "locks"
        self.due = now + (_SOON_S if sockets > self._most // 16 else _LOOK_S)
        return None

    def look_between_calls(self, now):
        """The same, and seldom while nothing uses CPU time."""
        excess = self.look(now)
        used_ms, before_ms = others_cpu_ms(), self._used_ms
        self._used_ms = used_ms
        if used_ms - before_ms < 0.1:
            self.due = now + _IDLE_S
        return excess


def children_cpu_ms():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def cpu_ms_of(pid):
    """CPU time of a process; 0 if its end was seen. Then children_cpu_ms has it."""
    try:
        after_name = read_lines("/proc/%s/stat" % pid)[0].rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) * 1000 / _TICKS_PER_S


def others_cpu_ms():
    """CPU time of this container without PID 1, from cgroup v2 or v1; 0 if neither can be read."""
    own_ms = time.process_time() * 1000
    try:
        stat = dict(line.split() for line in read_lines("/sys/fs/cgroup/cpu.stat"))
        if "nr_periods" in stat:  # else it is the host's
            return int(stat["usage_usec"]) / 1e3 - own_ms
    except OSError:
        pass
    try:
        return int(read_lines("/sys/fs/cgroup/cpuacct/cpuacct.usage")[0]) / 1e6 - own_ms
    except OSError:
        return 0.0


def system_ms():
    """CPU time of this container in the kernel, from cgroup v2 or v1; 0 if neither can be read."""
    try:
        stat = dict(line.split() for line in read_lines("/sys/fs/cgroup/cpu.stat"))
        if "nr_periods" in stat:  # else it is the host's
            return int(stat["system_usec"]) / 1e3
    except OSError:
        pass
    try:
        return int(read_lines("/sys/fs/cgroup/cpuacct/cpuacct.usage_sys")[0]) / 1e6
    except OSError:
        return 0.0


# /proc/locks, which forks.py opened before it was masked; None in a container of the job's own.
locks_fd = None


def has_more_locks(most):
    """Whether processes of this container have more locks of files; not if gVisor hides them."""
    count = 0
    try:
        if locks_fd is not None:
            os.lseek(locks_fd, 0, os.SEEK_SET)
        with open("/proc/locks" if locks_fd is None else os.dup(locks_fd)) as lines:
            for line in lines:
                # The kernel shows those of open file descriptions everywhere; the filter lets the code make none.
                count += " OFDLCK " not in line
                if count > most:
                    return True
    except OSError:
        pass
    return False


def count_sockets():
    """Sockets of this container's network namespace, of every kind and state; 0 if gVisor hides them."""
    try:
        return int(read_lines("/proc/net/sockstat")[0].split()[-1])
    except (OSError, ValueError):
        return 0


def memory_left():
    """Unused bytes of this container's memory limit, from cgroup v2 or v1; a huge number if neither can be read."""
    for used, most in (("memory.current", "memory.max"), ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes")):
        try:
            used, most = (int(read_lines("/sys/fs/cgroup/" + name)[0]) for name in (used, most))
            return most - used
        except (OSError, ValueError):
            pass
    return 1 << 62


def _high_descriptors():
    """High numbers for go and tell that code rarely uses, but below the limit of select(2)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    top = min(soft, 1024) if soft > 0 else 1024
    return top - 2, top - 1


def _write_gate(gate, settings):
    """Writes a .pyc file whose one constant "settings" is these. Its form: PEP 552, marshal."""
    constants = tuple([settings if value == "settings" else value for value in gate.co_consts])
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    write_file(_GATE, magic + bytes(12) + marshal.dumps(gate.replace(co_consts=constants)))


def main(load, codes, preload, compiled):
    """Runs until the job is over. It first sends the bytecode that it compiled."""
    if os.getpid() != 1:
        raise SystemExit("not PID 1: its signals to every process would reach the host's")
    harden_supervisor()
    supervisor = Supervisor(Interpreter(load, codes, preload))
    while compiled:
        supervisor.outbox.put(b"B", compiled.pop(0))
    supervisor.run()
    # A normal exit of the interpreter would take as long as a short job.
    os._exit(0)
