/** What a program finds around it. */
export const surroundings = {
  hello: `print("hello")`,
  empty: ``,
  "argv and what else names the program": `
import sys
print(sys.argv, getattr(sys, "orig_argv", None), __file__, __name__, sys.executable, sys.prefix)`,
  "attributes of __main__": `
import sys
main = sys.modules["__main__"]
print({k: v for k, v in vars(main).items() if k not in ("main", "__loader__", "__builtins__")})
print(type(__loader__), __builtins__.__name__, __doc__, __package__, __spec__)
print(list(globals()))`,
  "modules that are loaded": `
import sys
print(list(sys.modules))`,
  "paths and their finders": `
import sys
print(sys.path, list(sys.path_importer_cache), sys.path_hooks, sys.meta_path)`,
  "flags and hooks": `
import sys
print(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.getrecursionlimit())
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
print(sys.gettrace(), sys.getprofile(), sys.getswitchinterval(), sys.getdlopenflags())`,
  "standard streams": `
import sys
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s, s.encoding, s.errors, s.isatty(), s.line_buffering, getattr(s, "write_through", None), s.fileno())
print(repr(sys.stdin.read()))`,
  environment: `
import os
print(dict(sorted(os.environ.items())))
print(sorted(k for k in os.environb))`,
  "process attributes": `
import os, resource
print(os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups(), os.getcwd(), os.nice(0))
print(os.getsid(0) == os.getpid() == os.getpgrp(), oct(os.umask(0)))
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT")])`,
  "open descriptors": `
import os
fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
print(sorted(fd for fd in fds if fd < 1000))
r, w = os.pipe()
print(r, w)`,
  "descriptors of a child": `
import subprocess
print(subprocess.run(["ls", "/proc/self/fd"], stdout=-1, close_fds=False).stdout)`,
  "signal handlers and mask": `
import signal
print([(s, signal.getsignal(s)) for s in sorted(signal.valid_signals())])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
status = open("/proc/self/status").read().splitlines()
print([line for line in status if line.startswith("Sig") and not line.startswith("SigQ")])`,
  "signal dispositions of a child": `
import subprocess
out = subprocess.run(["cat", "/proc/self/status"], stdout=-1, restore_signals=False).stdout.decode()
print([line for line in out.splitlines() if line.startswith("Sig") and "SigQ" not in line])`,
  "user site and site module": `
import site, sys
print(site.ENABLE_USER_SITE, site.getuserbase(), site.getsitepackages(), sys.flags.no_user_site)`,
  "gc and interpreter state": `
import gc, threading, sys
print(gc.isenabled(), gc.get_threshold(), [t.name for t in threading.enumerate()])
print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.implementation.cache_tag)`,
  "ctypes, sockets and limits": `
import ctypes, os, resource, socket
print(ctypes.CDLL(None).getpid() == os.getpid(), ctypes.sizeof(ctypes.c_long), ctypes.c_char_p(b"x").value)
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1), resource.getrlimit(resource.RLIMIT_CORE))
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), open("/proc/self/oom_score_adj").read() in ("0\\n", "1000\\n"))`,
  "no trace of the gate": `
import gc, os, sys
print(sorted(os.listdir("/code")), [p for p in sys.path if "gate" in p])
try:
    import sitecustomize
except ImportError as e:
    print(repr(e), e.name)`,
};

/** How a program fails. */
export const exceptions = {
  "raise ValueError": `raise ValueError("boo")`,
  "raise without arguments": `raise KeyError`,
  "exception with a multi-line message": `raise RuntimeError("one\\ntwo\\n\\x00three\\udc80")`,
  "exception whose str fails": `
class E(Exception):
    def __str__(self): raise TypeError("no")
raise E()`,
  "nested functions": `
def a(n):
    if n == 0: raise IndexError("deep")
    a(n - 1)
a(5)`,
  "chained exceptions": `
try:
    try:
        1 / 0
    except ZeroDivisionError as e:
        raise ValueError("second") from e
except ValueError:
    raise TypeError("third")`,
  "suppressed context": `
try:
    1 / 0
except ZeroDivisionError:
    raise ValueError("x") from None`,
  "exception with notes and groups": `
import sys
if sys.version_info < (3, 11):
    raise ValueError("no groups yet")
e = ExceptionGroup("group", [ValueError("a"), ExceptionGroup("inner", [TypeError("b"), OSError(2, "c")])])
e.add_note("a note")
raise e`,
  "exception in a class body, a lambda and a comprehension": `
class A:
    x = [(lambda: 1 / y)() for y in (1, 0)]`,
  "OSError with a file name": `open("/nowhere/x")`,
  "import error": `import no_such_module_of_mine`,
  "import error from": `from os import no_such_name`,
  "syntax error": `x = (1,\nprint("x"`,
  "indentation error": `def f():\nreturn 1`,
  "tab error": `if 1:\n        x = 1\n\ty = 2`,
  "syntax error after output cannot be": `print("never")\n)`,
  "syntax warning": `print("a" is "a", "\\d")`,
  "recursion error": `
def f(): return f()
f()`,
  "depth until the recursion limit": `
def depth(n=0):
    try: return depth(n + 1)
    except RecursionError: return n
print(depth())`,
  "memory error": `x = bytearray(10**18)`,
  "assertion error": `assert 1 == 2, "maths"`,
  "unicode error": `"ä".encode("ascii")`,
  "print_stack and inspect": `
import inspect, sys, traceback
traceback.print_stack()
print([(f.filename, f.lineno, f.function) for f in inspect.stack()])
print(sys._getframe().f_back)`,
  "keyboard interrupt": `raise KeyboardInterrupt`,
  "keyboard interrupt by signal": `
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)`,
  "generator exit and stop iteration": `raise GeneratorExit("x")`,
  "exception that is not an Exception": `
class B(BaseException): pass
raise B("base")`,
  "raise a non-exception": `raise 3`,
};

/** How a program ends: its exit code, what runs at its end, and what happens to its streams. */
export const ends = {
  "SystemExit without a code": `raise SystemExit`,
  "sys.exit 0": `import sys; sys.exit(0)`,
  "sys.exit 3": `import sys; sys.exit(3)`,
  "sys.exit 137": `import sys; sys.exit(137)`,
  "sys.exit 256": `import sys; sys.exit(256)`,
  "sys.exit with a huge number": `import sys; sys.exit(2**70)`,
  "sys.exit -1": `import sys; sys.exit(-1)`,
  "sys.exit True": `import sys; sys.exit(True)`,
  "sys.exit with a text": `import sys; sys.exit("bye ü")`,
  "sys.exit with an object": `
import sys
class O:
    def __str__(self): return "an object"
sys.exit(O())`,
  "sys.exit with a tuple": `import sys; sys.exit((1, 2))`,
  "SystemExit subclass with a code attribute": `
class S(SystemExit): code = 9
raise S(1)`,
  "exit and quit of site": `exit(4)`,
  "sys.exit in a finally": `
import sys
try:
    1 / 0
finally:
    sys.exit(5)`,
  "os._exit": `import os; print("x", end=""); os._exit(6)`,
  "os._exit in a thread": `
import os, threading, time
threading.Thread(target=lambda: os._exit(7)).start()
time.sleep(5)`,
  "os.abort": `import os; os.abort()`,
  "killed by its own SIGKILL": `import os, signal; os.kill(os.getpid(), signal.SIGKILL)`,
  "killed by its own SIGTERM": `import os, signal; os.kill(os.getpid(), signal.SIGTERM)`,
  "segmentation fault": `
import ctypes, faulthandler
ctypes.string_at(0)`,
  "faulthandler's dump": `
import faulthandler, os, signal
faulthandler.enable()
os.kill(os.getpid(), signal.SIGFPE)`,

  "atexit in order, with an error in it": `
import atexit
atexit.register(print, "first registered")
atexit.register(lambda: 1 / 0)
atexit.register(print, "last registered")
raise ValueError("main")`,
  "atexit calls sys.exit": `
import atexit, sys
atexit.register(sys.exit, 8)`,
  "atexit's callbacks run by hand": `
import atexit
atexit.register(print, "once")
atexit._run_exitfuncs()
print("on")`,
  "threads that end late": `
import threading
def work():
    threading.main_thread().join()
    print("from the thread")
threading.Thread(target=work).start()
print("main ends")`,
  "daemon thread": `
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ends at once")`,
  "exception in a thread": `
import threading
t = threading.Thread(target=lambda: 1 / 0, name="T")
t.start(); t.join()
print("main is fine")`,
  "SystemExit in a thread": `
import threading, sys
t = threading.Thread(target=sys.exit, args=(3,))
t.start(); t.join()`,
  "the program's own excepthook": `
import sys
sys.excepthook = lambda t, v, tb: print("mine", t, v)
raise ValueError("x")`,
  "excepthook that fails": `
import sys
def hook(*a): raise TypeError("in the hook")
sys.excepthook = hook
raise ValueError("x")`,
  "excepthook deleted": `
import sys
del sys.excepthook
raise ValueError("x")`,
  "stderr deleted": `
import sys
sys.stderr = None
raise ValueError("x")`,
  "stdout closed": `
import sys
print("x"); sys.stdout.close()`,
  "unraisable in __del__": `
class A:
    def __del__(self): raise ValueError("del")
a = A(); del a
print("on")`,
  "__del__ at the end": `
class A:
    def __del__(self): print("deleted")
a = A()`,
  "__del__ at the end, of an object that a library module refers to": `
import os
class A:
    def __del__(self): print("deleted")
os.a = A()`,
  "__del__ at the end, in a cycle, with imports": `
class A:
    def __del__(self):
        import abc, io, os
        print("deleted", os.sep, io.StringIO("text").read(), abc.ABC.__name__)
a = A()
a.a = a
del a`,
  "an exception at the end, in a cycle": `
class A:
    def __del__(self): raise ValueError("del")
a = A()
a.a = a
del a`,
  "modules that exist at the end": `
import atexit, sys
atexit.register(lambda: print("os" in sys.modules, "io" in sys.modules))`,
  "a file left open by a program that the codecs refer to": `
import codecs, os
codecs.register_error("dash", lambda error: ("-", error.end))
out = open(os.dup(1), "w")
out.write("precious\\n")`,
  "a file left open by a program that a function of the library refers to": `
import os
out = open(os.dup(1), "w")
out.write("precious\\n")
def listdir(path="."): return []
os.listdir = listdir`,
  "a file left open that a class of the library refers to": `
import os
os._Environ.out = open(os.dup(1), "w")
os._Environ.out.write("precious\\n")`,
  "an import while stdout is closed at the end": `
import io, sys
class Out(io.TextIOWrapper):
    def close(self):
        import os
        os.write(1, b"closing\\n")
        super().close()
sys.stdout = Out(sys.stdout.buffer)
print("text")`,
  "modules after atexit's callbacks were run by hand": `
import atexit, os, pickle
atexit._run_exitfuncs()
import os as again
print(again is os, pickle.loads(pickle.dumps(os.getcwd)) is os.getcwd)`,
  "broken pipe": `
import os, sys
r, w = os.pipe()
os.close(r)
os.dup2(w, 1)
print("x")`,
  "generator closed at the end": `
def g():
    try: yield
    finally: print("closed")
it = g(); next(it)`,
  "unbuffered bytes and text in order": `
import os, sys
sys.stdout.write("a"); sys.stdout.buffer.write(b"b"); os.write(1, b"c"); print("d")
sys.stderr.write("e"); os.write(2, b"f")`,
  "streams opened by their names": `
for name in ("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/2"):
    with open(name, "w") as stream: stream.write(name + "\\n")
print(open("/dev/stdin").read())`,
  "a shell that writes to streams by their names": `
import subprocess
script = "echo out > /dev/stdout; echo err > /dev/stderr; echo more | tee -a /dev/stderr; cat /dev/stdin"
print(subprocess.run(script, shell=True).returncode)`,
  "bytes that are not UTF-8": `
import os, sys
os.write(1, bytes(range(256)))
sys.stdout.buffer.write(b"\\xff\\x00\\x1b[31m")
print("\\udcff")`,
};

/** What still happens after the last line of a program, and what could tell that it does not. */
export const lastActs = {
  "weakref callback that prints": `
import weakref
class A: pass
a = A()
ref = weakref.ref(a, lambda ref: print("gone", ref() is None))`,
  "weakref.finalize": `
import weakref
class A: pass
a = A()
weakref.finalize(a, print, "finalized")`,
  "weakref callback of an object that a library module refers to": `
import os, weakref
class A: pass
os.a = A()
ref = weakref.ref(os.a, lambda ref: print("gone"))`,
  "coroutine that was never awaited": `
async def work(): pass
coroutine = work()`,
  "async generator that was never closed": `
async def work():
    try: yield
    finally: print("closed")
it = work()
try: it.asend(None).send(None)
except StopIteration: pass`,
  "text in the buffers of the C library": `
import ctypes
libc = ctypes.CDLL(None)
libc.printf(b"from C\\n")
print("from Python")`,
  "a function of the C library's atexit": `
import ctypes
@ctypes.CFUNCTYPE(None)
def last(): pass
libc = ctypes.CDLL(None)
libc.printf(b"from C ")
libc.puts(b"again")`,
  "daemon thread that prints until the end": `
import threading
ready, hold = threading.Event(), threading.Event()
def work():
    print("begun")
    ready.set()
    hold.wait()
    print("never")
threading.Thread(target=work, daemon=True).start()
ready.wait()`,
  "thread with a local that prints when it is deleted": `
import threading
local = threading.local()
class A:
    def __del__(self): print("deleted")
local.a = A()`,
  "stdout that fails to flush": `
import io, sys
class Out(io.TextIOWrapper):
    def flush(self): raise OSError("no room")
sys.stdout = Out(sys.stdout.buffer)
print("text")`,
  "stdout on a full disk": `
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
sys.stdout = open(1, "w", closefd=False)
print("text")`,
  "stdout replaced": `
import io, os, sys
sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.dup(1), "w")))
print("text")`,
  "stdout replaced by an object without a flush": `
import sys
class Out:
    def write(self, text): sys.__stdout__.write(text.upper())
sys.stdout = Out()
print("text")`,
  "audit hook that prints": `
import sys
sys.addaudithook(lambda event, args: print(event))`,
  "audit hook that prints, and a failing program": `
import sys
sys.addaudithook(lambda event, args: print(event))
raise ValueError("x")`,
  "audit hook that prints, and atexit's callbacks run by hand": `
import atexit, sys
atexit.register(print, "once")
sys.addaudithook(lambda event, args: print(event))
atexit._run_exitfuncs()`,
  "tool ids of sys.monitoring": `
import sys
monitoring = getattr(sys, "monitoring", None)
if monitoring:
    print([monitoring.get_tool(tool) for tool in range(6)])
    for tool in range(6): monitoring.use_tool_id(tool, "mine")
    event = monitoring.events.PY_RETURN
    print([monitoring.register_callback(tool, event, lambda *a: None) for tool in range(6)])
    def f(): pass
    monitoring.set_local_events(5, f.__code__, event)
    monitoring.register_callback(5, event, lambda code, *a: print(code.co_name, "returns"))
    f()`,
  "atexit that prints": `
import atexit
atexit.register(print, "at exit")`,
  "atexit that raises": `
import atexit
def fail(): raise KeyError("at exit")
atexit.register(fail)
print("main ends")`,
  "atexit that forgets what was registered": `
import atexit
atexit.register(print, "never")
atexit._clear()`,
  "sys.exit after every name is deleted": `
import sys
leave = sys.exit
def end(leave):
    globals().clear()
    leave(3)
end(leave)`,
  "sys.exit after the names of its file are deleted": `
import sys
for name in ("__file__", "__cached__"): globals().pop(name, None)
sys.exit(3)`,
  "excepthook that hides the last exception": `
import sys
def hook(*error):
    print("mine")
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name): delattr(sys, name)
sys.excepthook = hook
raise ValueError("x")`,
  "exception whose text hides the last exception": `
import sys
class E(Exception):
    def __str__(self):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name): delattr(sys, name)
        return "text"
raise E`,
  "thread that runs at the end": `
import threading
def work():
    threading.main_thread().join()
    import os
    print("thread", os.getcwd())
threading.Thread(target=work).start()`,
  "children of multiprocessing": `
import multiprocessing
def work(queue): queue.put("child")
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
print(queue.get())`,
  "a pool of multiprocessing that nobody closed": `
import multiprocessing
pool = multiprocessing.get_context("fork").Pool(1)
print(pool.map(abs, [-1, -2]))`,
  "os.fork whose child ends like its parent": `
import os, sys
r, w = os.pipe()
pid = os.fork()
if pid:
    os.close(w)
    os.read(r, 1)
    print("parent", os.waitpid(pid, 0)[1])
else:
    print("child")`,
  "os.fork whose child leaves a file open": `
import os
if os.fork() == 0:
    out = open(os.dup(1), "w")
    out.write("child\\n")
else:
    print(os.wait()[1])`,
  "a database that a child left open": `
import os, sqlite3
if os.fork() == 0:
    db = sqlite3.connect("/tmp/rows")
    db.execute("pragma journal_mode = wal")
    db.execute("create table t (x)")
    db.execute("insert into t values (1)")
else:
    print(os.wait()[1], sorted(os.listdir("/tmp")), sqlite3.connect("/tmp/rows").execute("select * from t").fetchall())`,
  "a dbm that a child left open": `
import os
try: import dbm.ndbm as dbm
except ImportError: import dbm.dumb as dbm
if os.fork() == 0:
    db = dbm.open("/tmp/rows", "c")
    db[b"a"] = b"b"
else:
    print(os.wait()[1])
    db = dbm.open("/tmp/rows")
    print([(key, db[key]) for key in db.keys()])`,
  "temporary files that a child left": `
import os, tempfile
if os.fork() == 0:
    folder = tempfile.TemporaryDirectory()
    file = tempfile.NamedTemporaryFile()
else:
    print(os.wait()[1], os.listdir("/tmp"))`,
  "an unclosed file, with warnings": `
import warnings
warnings.simplefilter("always")
file = open("/dev/null")`,
  "unclosed files and sockets, with PYTHONWARNINGS": `
import os, sys
if "PYTHONWARNINGS" not in os.environ:
    os.environ["PYTHONWARNINGS"] = "always"
    os.execv(sys.executable, [sys.executable, __file__])
import os, socket
file, pair, entries = open("/dev/null"), socket.socketpair(), os.scandir("/")
next(entries)`,
  "dev mode": `
import os, sys
if not sys.flags.dev_mode:
    os.environ["PYTHONDEVMODE"] = "1"
    os.execv(sys.executable, [sys.executable, __file__])
file = open("/dev/null")`,
  faulthandler: `
import faulthandler
faulthandler.enable()
faulthandler.dump_traceback_later(60)
print(faulthandler.is_enabled())`,
  tracemalloc: `
import tracemalloc
tracemalloc.start()
class A:
    def __del__(self): print(tracemalloc.is_tracing())
a = A()`,
  unraisablehook: `
import sys
class A:
    def __del__(self): raise ValueError("del")
sys.unraisablehook = lambda error: print("mine", error.exc_value)
a = A()`,
  "uncollectable objects": `
import gc, warnings
warnings.simplefilter("always")
gc.garbage.append(object())`,
  "callback of the search for garbage": `
import gc
gc.collect()
gc.callbacks.append(lambda phase, info: print(phase, info["generation"]))`,
};

/** Programs that start others or run several things at once. */
export const processes = {
  "fork and wait": `
import os, warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    raise ValueError("in the child")
print(os.waitpid(pid, 0)[1])`,
  "fork, both end the program": `
import os, sys
sys.stdout.write("before ")
pid = os.fork()
if pid: os.waitpid(pid, 0)
print("child" if pid == 0 else "parent")`,
  "subprocess of the interpreter": `
import subprocess, sys
code = "import os, sys; print(sys.argv, sys.path, sorted(os.environ), 'sitecustomize' in sys.modules)"
print(subprocess.run([sys.executable, "-c", code, "x"], capture_output=True, text=True))`,
  "exec of another program": `import os; os.execvp("python3", ["python3", "-c", "raise SystemExit(11)"])`,
  "multiprocessing by fork": mp("fork"),
  "multiprocessing by spawn": mp("spawn"),
  "multiprocessing by forkserver": mp("forkserver"),
  "a pool that raises": `
import multiprocessing, warnings
def f(x): return 1 / x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try: pool.map(f, [1, 0])
        except ZeroDivisionError as e: print(repr(e), type(e.__cause__).__name__)`,
  "an exception in a Process": `
import multiprocessing as m
def f(): raise ValueError("child")
if __name__ == "__main__":
    p = m.get_context("spawn").Process(target=f)
    p.start(); p.join(); print(p.exitcode)`,
  "concurrent.futures": `
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import multiprocessing
def f(x): return x * x
if __name__ == "__main__":
    with ThreadPoolExecutor(2) as e: print(list(e.map(f, range(5))))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as e:
        print(list(e.map(f, range(5))))`,
  "pickling of __main__'s classes": `
import pickle, pickletools, copy
class A:
    def __eq__(self, o): return vars(self) == vars(o)
    def __init__(self, x): self.x = x
data = pickle.dumps(A(1), 4)
print(data, pickle.loads(data) == A(1), copy.deepcopy(A([1])) == A([1]), A.__module__, A.__qualname__)`,
  "asyncio.run": `
import asyncio
async def main():
    await asyncio.sleep(0)
    print("in the loop")
    raise LookupError("async")
asyncio.run(main())`,
  "asyncio task whose exception is never read": `
import asyncio, gc
async def bad(): raise ValueError("lost")
async def main():
    t = asyncio.ensure_future(bad())
    await asyncio.sleep(0); del t; gc.collect()
asyncio.run(main())`,
  "asyncio subprocess": `
import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1)
    print(await p.communicate())
asyncio.run(main())`,
};

function mp(method: string): string {
  return `
import multiprocessing as m, os, sys, warnings
warnings.simplefilter("ignore")
def f(q, x):
    q.put((x * 2, __name__, sys.path, 'PYTHONPATH' in os.environ, m.current_process().name))
if __name__ == "__main__":
    c = m.get_context("${method}")
    q = c.Queue()
    p = c.Process(target=f, args=(q, 21)); p.start(); print(q.get()); p.join(); print(p.exitcode)
    with c.Pool(2) as pool: print(pool.map(abs, range(-3, 3)))
    with c.Manager() as manager: d = manager.dict(); d[1] = 2; print(d)`;
}

/** The standard library, and what a program can do to the interpreter. */
export const library = {
  warnings: `
import warnings
warnings.warn("careful")
warnings.warn("old", DeprecationWarning)
def f(): warnings.warn("deeper", stacklevel=2)
f()`,
  logging: `
import logging
logging.basicConfig(format="%(levelname)s %(module)s %(funcName)s %(lineno)d %(message)s")
logging.warning("w")
try: 1 / 0
except ZeroDivisionError: logging.exception("e")`,
  "dataclass, enum and typing of __main__": `
import dataclasses, enum, typing
@dataclasses.dataclass
class P: x: "int"
class C(enum.Enum): A = 1
print(P(1), C.A, typing.get_type_hints(P))`,
  "files with relative names": `
import os
open("x.txt", "w").write("1")
print(os.path.abspath("x.txt"), os.path.exists("/output/x.txt"))`,
  "what the program can write": `
import os
for path in ("/code/x", "/code/main.py", "/input/x", "/input/data.json"):
    try: open(path, "w"); print(path, "written")
    except OSError as e: print(e)`,
  "code and input as the program sees them": `
import os, stat
for path in ("/code", "/code/main.py", "/input", "/input/data.json"):
    s = os.stat(path); print(path, s.st_uid)
print(open("/input/data.json").read())`,
  "the program's own source": `
import inspect, sys, linecache
def f(): return 1
print(inspect.getsource(f), open(__file__).readline(), linecache.getline(__file__, 2))`,
  "runpy, exec and import of the program itself": `
import runpy, sys
if __name__ == "__main__":
    import main
    print(main.__name__, main.__file__)
    runpy.run_path(__file__, run_name="again")
print(__name__)`,
  "the program's own audit hooks": `
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event.startswith("cpython.run") or event == "os.putenv" else None)
import os
os.putenv("A", "b")
print(seen)`,
  "trace and profile": `
import sys
calls = []
def f(): pass
sys.setprofile(lambda frame, event, arg: calls.append((event, frame.f_code.co_name)))
f(); open("/dev/null").close(); id(f)
sys.setprofile(None)
print(calls)`,
  "tracemalloc's snapshot": `
import tracemalloc
tracemalloc.start(5)
x = [bytes(1000) for _ in range(10)]
print(tracemalloc.take_snapshot().statistics("filename")[0].traceback)`,
  "monkeypatched builtins": `
import builtins, os
builtins.str = builtins.type = builtins.len = builtins.print = None
os.write = os.getpid = None
raise ValueError("still")`,
  "deleted sys attributes": `
import sys
sys.modules.clear()
raise ValueError("still")`,
};

/** Source text of any form. */
export const sourceForms = {
  "coding cookie": Buffer.from(
    '# -*- coding: latin-1 -*-\nprint("\xe4\xf6", ascii("\xfc"))\n',
    "latin1",
  ),
  "bad coding cookie": `# coding: nonsense\nprint(1)`,
  "not UTF-8 without a cookie": Buffer.from('print("\xe4")\n', "latin1"),
  "byte order mark": `\ufeffprint("bom")\nraise ValueError`,
  "carriage returns and line feeds": `print("a")\r\nx = """\r\n"""\r\nprint(repr(x))\r\nraise ValueError\r\n`,
  "carriage returns alone": `print("a")\rprint("b")\r`,
  "no newline at the end": `if 1:\n  print("x")\n  raise ValueError  # end`,
  "a line of 1 MB": `x = "${"y".repeat(1_000_000)}"\nprint(len(x))\nraise ValueError(x[:3])`,
  "many lines": `${"x = 1\n".repeat(50_000)}raise ValueError(__import__("sys")._getframe().f_lineno)`,
  "form feed, tabs and line continuation": `\fx = 1 + \\\n\t2\nprint(x)`,
  "deep nesting": `${"(".repeat(150)}1${")".repeat(150)}\nprint("ok")`,
  "non-ASCII names": `größe = 3\nprint(größe)\n1/größe/0`,
  "future import and doc string": `"""doc"""\nfrom __future__ import annotations\nprint(__doc__, annotations)`,
};
