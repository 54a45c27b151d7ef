# Runs in a zygote, as root of its user namespace, from its first exec to its second one.
# Three values come before it: `codes`, the compiled modules; `gate`, the text of the rest; and `folder`, where
# Python looks for the gate.
import marshal
import os
import sys

code = compile(gate, folder + "/sitecustomize.py", "exec")  # noqa: F821
modules = tuple(codes.items())  # noqa: F821
code = code.replace(co_consts=tuple([modules if value == "its modules" else value for value in code.co_consts]))
magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
with open(folder + "/sitecustomize.pyc", "wb") as file:  # noqa: F821
    file.write(magic + bytes(12) + marshal.dumps(code))  # its form: PEP 552
os.execvp("python3", ["python3", "/code/main.py"])
