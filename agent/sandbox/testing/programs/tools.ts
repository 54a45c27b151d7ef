import { expect } from "vitest";

/** Programs that call tools, with what they print. answer-calls.ts has the tools. */
export type Row = [what: string, code: string, out: string, rest?: { err?: unknown; end?: string }];

export const programs: Row[] = [
  ["returns its result", "print(add(1, 2), add(b=1, a=3), add(5))", "3 4 5\n"],
  [
    "has name, docstring and signature",
    `import inspect
print(add.__name__, add.__qualname__, add.__module__, add.__doc__)
for each in (add, echo, fail, odd, later): print(inspect.signature(each))
print(inspect.iscoroutinefunction(later), inspect.iscoroutinefunction(add))`,
    "add add __main__ Adds two numbers.\n(a, b=Ellipsis)\n(**others)\n()\n(args, others=Ellipsis, **others_)\n(n=Ellipsis)\nTrue False\n",
  ],
  [
    "takes names that no parameter can have",
    'print(odd(1, **{"user-id": 2, "class": 3, "__debug__": 4, "ﬁ": 5}))',
    "{'args': 1, 'user-id': 2, 'class': 3, '__debug__': 4, 'ﬁ': 5}\n",
  ],
  [
    "any JSON goes both ways",
    String.raw`print(echo(a=None, b=[True, 1.5, "é\ud800\0", {}], c={"d": "\"},{"}) == {"a": None, "b": [True, 1.5, "é\ud800\0", {}], "c": {"d": "\"},{"}})`,
    "True\n",
  ],
  [
    "what is no JSON is an exception of the code, and no call",
    `for value in (object(), float("nan"), {(1,): 2}):
    try: echo(a=value)
    except (TypeError, ValueError) as error: print(type(error).__name__)
print(add(1))`,
    "TypeError\nValueError\nTypeError\n1\n",
  ],
  [
    "wrong arguments are a TypeError",
    `try: add()
except TypeError as error: print(error)
try: fail(1)
except TypeError as error: print(error)`,
    "add() missing 1 required positional argument: 'a'\nfail() takes 0 positional arguments but 1 was given\n",
  ],
  [
    "an error is a ToolError",
    "try: fail()\nexcept ToolError as error: print(repr(error), type(error).__module__)",
    "ToolError('it failed') __main__\n",
  ],
  [
    "an error that the code does not catch ends it, without our frames",
    "def f():\n    fail()\nf()",
    "",
    {
      err: expect.stringMatching(
        /^Traceback \(most recent call last\):\n {2}File "\/code\/main.py", line 3, in <module>\n(?:.*\n){1,2} {2}File "\/code\/main.py", line 2, in f\n(?!.*(airlock|tools))(?:.*\n){1,2}(__main__\.)?ToolError: it failed\n$/,
      ),
      end: "failed runtime_error",
    },
  ],
  [
    "many threads at once",
    `from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(50) as pool: print(sum(pool.map(add, range(200), range(200))))`,
    "39800\n",
  ],
  [
    "many coroutines at once",
    `import asyncio
found = await asyncio.gather(*[later(n) for n in range(200)])
print([each["n"] for each in found] == list(range(200)))`,
    "True\n",
  ],
  [
    "threads and coroutines at once",
    `import asyncio
async def both(n):
    return (await asyncio.gather(later(n), asyncio.to_thread(add, n) if hasattr(asyncio, "to_thread") else later(n)))[0]["n"]
print(sum(await asyncio.gather(*[both(n) for n in range(60)])))`,
    "1770\n",
  ],
  [
    "one that waits in a coroutine blocks it, and another's answer comes all the same",
    `import asyncio
async def f():
    task = asyncio.ensure_future(later(1))
    await asyncio.sleep(0)
    return add(1), (await task)["n"]
print(await f())`,
    "(1, 1)\n",
  ],
  [
    "a coroutine that gives up",
    `import asyncio
from concurrent.futures import ThreadPoolExecutor
async def f():
    with ThreadPoolExecutor(1) as pool:
        hanging = asyncio.ensure_future(later(7))
        hanging.cancel()
        try: await hanging
        except asyncio.CancelledError: print("gave up")
    print((await later(8))["n"])
asyncio.run(f())
print(add(2))`,
    "gave up\n8\n2\n",
  ],
  [
    "a loop of its own in each thread",
    `import asyncio, threading
found = []
def f(n): found.append(asyncio.run(later(n))["n"])
threads = [threading.Thread(target=f, args=(n,)) for n in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(sorted(found))`,
    "[0, 1, 2, 3, 4, 5, 6, 7]\n",
  ],
  [
    "a signal handler that calls, while a call waits",
    `import signal, threading
signal.signal(signal.SIGALRM, lambda *_: print("handler", add(1, 1)))
signal.setitimer(signal.ITIMER_REAL, 0.05)
def stop(): raise SystemExit(0)
def raise_later(*_): raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, raise_later)
import os
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
try: never()
except KeyboardInterrupt: print("interrupted")
print(add(2, 2))`,
    "handler 2\ninterrupted\n4\n",
  ],
  [
    "only the first process calls",
    `import os
pid = os.fork()
if pid == 0:
    try: add(1)
    except ToolError as error: print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(add(1))`,
    "Only the first process of the code can call add().\n1\n",
  ],
  [
    "a program that it starts gets no descriptor of the calls",
    `import os, subprocess, sys
print(subprocess.run([sys.executable, "-c", "import os; print([fd for fd in os.listdir('/proc/self/fd') if int(fd) > 900])"], close_fds=False, capture_output=True, text=True).stdout.strip())`,
    "[]\n",
  ],
  [
    "answers that are larger than a pipe",
    "text = 'x' * 1_000_000\nprint(echo(a=text)['a'] == text)",
    "True\n",
  ],
  [
    "arguments above 1 MiB are a ToolError, and no call",
    `try: echo(a="x" * (1 << 20))
except ToolError as error: print(error)
print(add(1))`,
    "The arguments of echo() have more than 1048576 bytes of JSON.\n1\n",
  ],
  [
    "1,000 calls, and no more",
    `for n in range(1000): add(n)
try: add(1)
except ToolError as error: print(error)`,
    "The code has called tools too often, or with too many bytes of arguments.\n",
  ],
  [
    "patched modules and builtins",
    `import builtins, json, json.decoder, json.encoder, keyword, posix, _thread
for module in (json, json.encoder, json.decoder, keyword, posix, _thread):
    for name in dir(module):
        if not name.startswith("__"): setattr(module, name, None)
show = print
for name in ("len", "iter", "next", "isinstance", "dict", "Exception", "set", "eval", "open", "type", "print"):
    setattr(builtins, name, None)
show(add(1, 2))`,
    "3\n",
  ],
];
