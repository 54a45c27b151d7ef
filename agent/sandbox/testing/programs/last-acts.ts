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
