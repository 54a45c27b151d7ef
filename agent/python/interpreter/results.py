# Runs in the code's interpreter, as uid 1000, from the gate to the end of the code, if the job asked for results.
# Comes before tools.py and cells.py: sends what the code displays to PID 1, as MIME bundles.
# The gate gives both builtins of their own, so code that patches builtins or modules breaks nothing here by accident.
import sys
from _io import BufferedWriter, FileIO
from _thread import RLock, allocate_lock
from fcntl import ioctl
from posix import F_OK, access, getpid, mkdir
from time import sleep

try:
    from _json import encode_basestring as quoted
except ImportError:
    from json.encoder import encode_basestring as quoted

MOST_ITEMS, MOST_BYTES, MOST_OF_ITEM, MOST_OF_TEXT = 1000, 8 << 20, 1 << 20, 64 << 10
FIONREAD = 0x541B
PAUSES = [0] * 100 + [0.0005] * 100
OURS = {(lambda: 0).__code__.co_filename}
METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}
show_error = sys.__excepthook__
code_file = sys.argv[0]


class Channel:
    """Messages to PID 1: kind (1 byte), length (4 bytes, big-endian), payload. Only this process sends them.

    An interrupt may end a send at any instant. The buffer has room for the largest message, so it is sent whole, by
    the next send at the latest, or not at all.
    """

    def __init__(self, fd):
        self._fd = fd
        self._writer = BufferedWriter(FileIO(fd, "w", False), MOST_OF_ITEM + (64 << 10))
        self._lock = RLock()
        self._waiting = []
        self._pid = getpid()

    def is_ours(self):
        return getpid() == self._pid

    def send(self, kind, payload=b""):
        self._waiting.append(kind + len(payload).to_bytes(4, "big") + payload)
        with self._lock:
            while self._waiting:
                message = self._waiting.pop(0)
                try:
                    self._writer.write(message)
                    self._writer.flush()
                    self._wait_until_read()
                except OSError:
                    pass  # the code closed it
                except RuntimeError:  # a signal handler of the thread that writes, which sends this afterwards
                    self._waiting.insert(0, message)
                    return

    def finish(self):
        """Sends the rest of a message whose sending was interrupted."""
        with self._lock:
            try:
                self._writer.flush()
            except OSError:
                pass

    def _wait_until_read(self):
        """Waits, so that what is printed from here on comes after the message."""
        for pause in PAUSES:
            if ioctl(self._fd, FIONREAD, bytes(4)) == bytes(4):
                return
            sleep(pause)


class Results:
    """Sends items within their limits; of what is beyond them, the text or nothing."""

    def __init__(self, channel):
        self._channel = channel
        self.begin()

    def begin(self):
        self._count = self._bytes = 0
        self._is_cut = False

    def send(self, value, is_main=False):
        # One is kept for the main result.
        if self._count >= MOST_ITEMS - (not is_main):
            self._cut()
            return
        data, is_cut = bundle_of(value)
        if not self._channel.is_ours():
            print(data.get("text/plain", ""), flush=True)
            return
        if not data:
            return
        payload = encode(data, is_main)
        if not self._fits(payload):
            is_cut = True
            keep_pictures(data, self._count + 1)
            payload = encode({"text/plain": data.get("text/plain", "")}, is_main)
        if is_cut:
            self._cut()
        if not self._fits(payload):
            return
        self._count += 1
        self._bytes += len(payload)
        flush()
        self._channel.send(b"y", payload)

    def _cut(self):
        if not self._is_cut:
            self._is_cut = True
            self._channel.send(b"t")

    def _fits(self, payload):
        return len(payload) <= MOST_OF_ITEM and self._bytes + len(payload) <= MOST_BYTES


def encode(data, is_main):
    entries = ",".join(["%s:%s" % (quoted(name), quoted(data[name])) for name in data])
    text = '{"main":%s,"data":{%s}}' % ("true" if is_main else "false", entries)
    return text.encode("utf-8", "replace")


def keep_pictures(data, number):
    """Writes the pictures of an item that is too large to files of /output."""
    for name in PICTURES.keys() & data.keys():
        try:
            import binascii

            text = data[name]
            content = text.encode("utf-8", "replace") if name == "image/svg+xml" else binascii.a2b_base64(text)
            folder = "/output/_results"
            if not access(folder, F_OK):
                mkdir(folder)
            with open("%s/%d.%s" % (folder, number, PICTURES[name]), "xb") as file:
                file.write(content)
        except Exception:
            pass


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def bundle_of(value):
    """The forms of a value by MIME type, as text or base64; and whether its text was cut."""
    data = {}
    if not isinstance(value, type) and not has_every_attribute(value):
        found = ask(value, "_repr_mimebundle_", include=None, exclude=None)
        found = found[0] if isinstance(found, tuple) and found else found
        if isinstance(found, dict):
            data.update(found)
        for name, method in METHODS.items():
            if name not in data:
                data[name] = ask(value, method)
    if is_figure(value):
        data["image/png"] = png_of(value)
    if "text/plain" not in data:
        try:
            data["text/plain"] = repr(value)
        except Exception as error:
            complain(error)
    data = {name: as_text(part) for name, part in data.items() if isinstance(name, str)}
    data = {name: part for name, part in data.items() if part is not None}
    is_cut = len(data.get("text/plain", "")) > MOST_OF_TEXT
    if is_cut:
        data["text/plain"] = data["text/plain"][:MOST_OF_TEXT] + "…"
    return data, is_cut


def has_every_attribute(value):
    """Whether it answers to any name, as mocks and proxies do, or to none."""
    try:
        return getattr(value, "_airlock_has_no_such_attribute_", None) is not None
    except Exception:
        return True


def ask(value, name, **arguments):
    try:
        method = getattr(value, name, None)
        return method(**arguments) if callable(method) else None
    except NotImplementedError:
        return None
    except Exception as error:
        complain(error)
        return None


def as_text(part):
    if isinstance(part, tuple) and part:
        part = part[0]  # metadata comes second
    if isinstance(part, str):
        return str.__str__(part)
    try:
        if isinstance(part, (bytes, bytearray)):
            import binascii

            return binascii.b2a_base64(part, newline=False).decode()
        if isinstance(part, (dict, list)):
            import json

            return json.dumps(part)
    except Exception as error:
        complain(error)
    return None


def complain(error):
    """Prints an exception that does not end the code."""
    error.__traceback__ = without_ours(error.__traceback__)
    show_error(type(error), error, error.__traceback__)


def without_ours(trace):
    """A traceback from the first frame of the code on, without those of a tool that it called."""
    ours = trace
    while ours and ours.tb_frame.f_code.co_filename != code_file:
        ours = ours.tb_next
    while ours is None and trace and trace.tb_frame.f_code.co_filename in OURS:
        trace = trace.tb_next
    last = each = ours
    while each:
        if each.tb_frame.f_code.co_filename not in OURS:
            last = each
        each = each.tb_next
    if last is not None:
        last.tb_next = None
    return ours or trace


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def png_of(figure):
    try:
        import io

        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()
    except Exception as error:
        complain(error)
        return None
