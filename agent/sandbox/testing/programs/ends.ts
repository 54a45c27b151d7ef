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
