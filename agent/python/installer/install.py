"""Runs in the installer, as root without a network, from the start to the end of one build's container.

Installs packages into the image that this container is to become.

Reads from stdin one line of JSON, {"requirements", "pip_env", "files": [{"name", "size"}]}, and then the
files' bytes. The container has no network: pip's connections go over stdin and stdout as the frames of
tunnel.py. The last frame is P with {"python_version"}. The log goes to stderr. Secrets and other data that
must not stay in the image come over stdin and are kept in memory and in /tmp, which is a volume.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys

from link import Inbox, Outbox
from tunnel import Tunnel

_FOLDER = "/tmp/airlock-build"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def main():
    os.umask(0o022)
    orders = json.loads(sys.stdin.buffer.readline())
    for file in orders["files"]:
        receive(os.path.join(_FOLDER, file["name"]), file["size"])
    outbox = Outbox(1)
    if orders["requirements"]:
        install(orders["requirements"], orders["pip_env"], outbox)
    outbox.put_json(b"P", {"python_version": "%d.%d.%d" % sys.version_info[:3]})
    os.set_blocking(1, True)
    while not outbox.empty:
        outbox.write()


def receive(path, size):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        while size > 0:
            chunk = sys.stdin.buffer.read(min(size, 1024 * 1024))
            if not chunk:
                raise SystemExit("the agent hung up")
            file.write(chunk)
            size -= len(chunk)


def install(requirements, pip_env, outbox):
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tunnel = Tunnel(outbox)
    pip = start_pip(requirements, pip_env, "http://127.0.0.1:%d" % tunnel.port)
    serve_until(lambda: pip.poll() is not None, ended, tunnel, outbox)
    tunnel.close()
    if pip.returncode != 0:
        raise SystemExit(pip.returncode if pip.returncode > 0 else 128 - pip.returncode)


def start_pip(requirements, pip_env, proxy):
    env = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    env.update(pip_env, HOME="/tmp", PIP_PROXY=proxy, http_proxy=proxy, https_proxy=proxy)
    # -B: pip's own bytecode does not belong in the image. It compiles the packages' bytecode anyway.
    command = [shutil.which("python3"), "-B", "-m", "pip", "install", "--", *requirements]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd="/tmp", env=env)


def serve_until(is_over, ended, tunnel, outbox):
    inbox = Inbox(0)

    def take_frames():
        for kind, payload in inbox.read():
            tunnel.take(kind, payload)

    while not is_over():
        polled = [
            (ended, select.POLLIN, lambda: os.read(ended, 4096)),
            (inbox.fd, select.POLLIN, take_frames),
            *tunnel.to_poll(),
        ]
        if not outbox.empty:
            polled.append((outbox.fd, select.POLLOUT, outbox.write))
        poll = select.poll()
        for fd, events, _ in polled:
            poll.register(fd, events)
        handlers = {fd: handler for fd, _, handler in polled}
        for fd, _ in poll.poll():
            handlers[fd]()


main()
