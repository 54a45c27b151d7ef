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
