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
  tracemalloc: `
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
