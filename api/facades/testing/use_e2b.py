"""Uses the package e2b-code-interpreter as its documentation shows, and prints what it was told as JSON."""

import json

from e2b_code_interpreter import Sandbox

told, streamed = {}, []


def attempt(name, call):
    try:
        told[name] = call()
    except Exception as error:
        told[name] = "%s: %s" % (type(error).__name__, str(error)[:40])


def shown(execution):
    error = execution.error
    return {
        "results": [[result.is_main_result, result.text, result.png, result.json] for result in execution.results],
        "stdout": execution.logs.stdout,
        "error": error and [error.name, error.value, error.traceback.count("Traceback")],
    }


def contexts():
    context = sandbox.create_code_context(cwd="/tmp")
    ran = sandbox.run_code("y = 1\nimport os\nprint('x' in globals(), os.getcwd())", context=context)
    sandbox.restart_code_context(context)
    fresh = sandbox.run_code("'y' in globals()", context=context).text
    both = len(sandbox.list_code_contexts())
    sandbox.remove_code_context(context)
    return [ran.logs.stdout, fresh, both, len(sandbox.list_code_contexts())]


def files():
    sandbox.files.write("a/b.txt", "héllo")
    sandbox.files.write_files([{"path": "c.bin", "data": b"\0\xff"}, {"path": "/tmp/t", "data": "t"}])
    return [
        [sandbox.files.read(path) for path in ("/home/user/a/b.txt", "/tmp/t")],
        list(sandbox.files.read("c.bin", format="bytes")),
        [[entry.name, entry.type.value, entry.path] for entry in sandbox.files.list("/home/user")],
        [sandbox.files.make_dir("d"), sandbox.files.make_dir("d")],
        sandbox.files.rename("c.bin", "d/e").path,
        [sandbox.files.exists("c.bin"), sandbox.files.exists("d/e"), sandbox.files.get_info("a/b.txt").size],
        sandbox.files.remove("d"),
    ]


def command():
    done = sandbox.commands.run("echo out; echo é >&2; pwd; echo $A", envs={"A": "b"}, cwd="/tmp", on_stdout=streamed.append)
    return [done.stdout, done.stderr, done.exit_code]


rich = """class Rich:
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_json_(self): return {"a": 1}
    def __repr__(self): return "rich"
display(Rich())"""
sandbox = Sandbox.create(timeout=120, metadata={"user": "a & b"}, envs={"WHO": "ada"})
attempt("code", lambda: shown(sandbox.run_code("x = 1\nimport os\nprint(os.environ['WHO'])\nx + 1", on_result=lambda result: streamed.append(result.text))))
attempt("state", lambda: sandbox.run_code("x += 1; x").text)
attempt("rich", lambda: shown(sandbox.run_code(rich)))
attempt("error", lambda: shown(sandbox.run_code("raise ValueError('a: \\u2028é')", on_error=lambda error: streamed.append(error.name))))
attempt("bash", lambda: shown(sandbox.run_code("echo $((6 * 7))", language="bash")))
attempt("contexts", contexts)
attempt("files", files)
attempt("missing", lambda: sandbox.files.read("nothing"))
attempt("command", command)
attempt("fails", lambda: sandbox.commands.run("exit 3"))
attempt("late", lambda: sandbox.commands.run("sleep 60", timeout=2))
attempt("late_code", lambda: sandbox.run_code("import time\ntime.sleep(60)", timeout=2))
attempt("connect", lambda: Sandbox.connect(sandbox.sandbox_id).run_code("x").text)
attempt("info", lambda: [sandbox.get_info().metadata, sandbox.get_info().memory_mb, sandbox.is_running()])
attempt("set_timeout", lambda: sandbox.set_timeout(300))
attempt("list", lambda: [info.sandbox_id == sandbox.sandbox_id for info in Sandbox.list().next_items()])
attempt("kill", lambda: [sandbox.kill(), sandbox.kill(), sandbox.is_running()])
attempt("gone", lambda: sandbox.run_code("1"))
attempt("wrong_key", lambda: Sandbox.create(api_key="e2b_0123456789abcdef0123"))
print(json.dumps({"told": told, "streamed": streamed}))
