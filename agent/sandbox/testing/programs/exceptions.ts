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
