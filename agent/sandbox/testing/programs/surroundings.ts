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
