# Runs in the code's interpreter, as uid 1000, from the gate to the end of the code, if the job asked for results.
# Functions of the caller, whose calls go to PID 1 through a channel of cells.py.
from _thread import RLock, allocate_lock
from fcntl import ioctl
from posix import read

FIONREAD = 0x541B

MOST_PENDING, MOST_CALLS, MOST_OF_CALL, MOST_OF_CALLS = 32, 1000, 1 << 20, 32 << 20


class ToolError(Exception):
    """A function of the caller failed, or cannot be called."""

    __module__ = "__main__"


class Calls:
    """Calls that wait for their answers. Of the threads that wait, one reads for all."""

    def __init__(self, channel, fd):
        self._encode, self._decode = make_codec()
        self._channel, self._fd = channel, fd
        self._ids = iter(range(1, MOST_CALLS + 1))
        self._left = MOST_OF_CALLS
        self._takers = {}  # what takes an answer, by the id of its call
        self._unsent = []
        self._sent = set()
        self._sending = RLock()
        self._buffer = bytearray()
        # A signal handler may call while this thread reads.
        self._reading = RLock()
        self._waiting = []  # a lock for each thread that waits; released, the thread looks again
        self._listening = {}  # calls that wait, by event loop
        self._over = None  # why no call may come any more

    def end(self, why):
        """Refuses calls from now on. Those that wait get the reason as their error."""
        self._over = why
        # Another thread may send one now.
        with self._sending:
            pass
        while self._takers:
            _, take = self._takers.popitem()
            take({"error": why})

    def call(self, name, arguments):
        answers = []
        look = allocate_lock()
        look.acquire()

        def take(answer):
            answers.append(answer)
            wake(look)

        number = self._begin(name, arguments, take)
        self._waiting.append(look)
        try:
            while not answers:
                if not self._reading.acquire(False):
                    look.acquire()
                    continue
                try:
                    while not answers:
                        self._read()
                finally:
                    self._reading.release()
        finally:
            self._takers.pop(number, None)
            self._waiting.remove(look)
            self._pass_on()
        return value_of(answers[0])

    async def wait(self, name, arguments):
        from asyncio import get_running_loop

        loop = get_running_loop()
        future = loop.create_future()

        def settle(answer):
            if not future.done():
                future.set_result(answer)

        def take(answer):
            try:
                loop.call_soon_threadsafe(settle, answer)
            except RuntimeError:
                pass  # the loop is closed

        number = self._begin(name, arguments, take)
        if loop not in self._listening:
            loop.add_reader(self._fd, self._read_what_is_there)
        self._listening[loop] = self._listening.get(loop, 0) + 1
        try:
            return value_of(await future)
        finally:
            self._takers.pop(number, None)
            self._listening[loop] -= 1
            if self._listening[loop] == 0:
                del self._listening[loop]
                loop.remove_reader(self._fd)

    def _begin(self, name, arguments, take):
        self._check()
        if not self._channel.is_ours():
            raise ToolError("Only the first process of the code can call %s()." % name)
        text = self._encode(arguments)
        if len(text) > MOST_OF_CALL - 200:
            raise ToolError("The arguments of %s() have more than %d bytes of JSON." % (name, MOST_OF_CALL))
        number = next(self._ids, None)
        if number is None or self._left < len(text):
            raise ToolError("The code has called tools too often, or with too many bytes of arguments.")
        payload = ('{"id":%d,"name":"%s","arguments":%s}' % (number, name, text)).encode()
        self._left -= len(payload)
        self._takers[number] = take
        self._unsent.append((number, payload))
        self._send()
        self._check()
        return number

    def _check(self):
        if self._over is not None:
            raise ToolError(self._over)

    def _send(self):
        """Sends calls while not too many wait. Whoever holds the lock sends for all."""
        while self._may_send() and self._sending.acquire(False):
            try:
                while self._may_send():
                    number, payload = self._unsent.pop(0)
                    if number in self._takers:
                        self._sent.add(number)
                        self._channel.send_after_output(b"q", payload)
            finally:
                self._sending.release()

    def _may_send(self):
        return self._unsent and len(self._sent) < MOST_PENDING and self._over is None

    def _read(self):
        """Waits for bytes, and gives out the answers that are complete: 4 bytes of length (big-endian), and JSON."""
        data = read(self._fd, 65536)
        if not data:
            raise ToolError(self._over or "Answers cannot come any more.")
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                break
            text = buffer[4:end].decode()
            del buffer[:end]
            answer = self._decode(text)
            self._sent.discard(answer["id"])
            take = self._takers.pop(answer["id"], None)
            if take is not None:
                take(answer)
        self._send()

    def _read_what_is_there(self):
        if not self._reading.acquire(False):
            return  # a thread reads
        try:
            if ioctl(self._fd, FIONREAD, bytes(4)) != bytes(4):
                self._read()
        finally:
            self._reading.release()
            self._pass_on()

    def _pass_on(self):
        """Lets another thread read."""
        for look in self._waiting[:1]:
            wake(look)


def make_codec():
    """Functions from and to JSON that use nothing which the code can patch by accident."""
    from json import JSONDecoder, JSONEncoder
    from json.encoder import c_make_encoder, encode_basestring_ascii

    default, scan = JSONEncoder().default, JSONDecoder().scan_once

    def encode(value):
        write = c_make_encoder({}, default, encode_basestring_ascii, None, ":", ",", False, False, False)
        return "".join(write(value, 0))

    def decode(text):
        return scan(text, 0)[0]

    return encode, decode


def wake(lock):
    try:
        lock.release()
    except RuntimeError:
        pass  # it is awake


def value_of(answer):
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["result"]


def make_functions(calls):
    """The functions by name, as the agent describes them."""
    from json import loads

    with open("/input/_tools", "rb") as file:
        tools = loads(file.read())
    return {tool["name"]: make_function(tool, calls) for tool in tools}


def make_function(tool, calls):
    name = tool["name"]
    bind = make_signature(name, tool.get("parameters", {}))

    def given(args, named):
        return {key: value for key, value in bind(*args, **named).items() if value is not ...}

    if tool.get("awaitable"):

        async def function(*args, **named):
            return await calls.wait(name, given(args, named))

    else:

        def function(*args, **named):
            return calls.call(name, given(args, named))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__doc__ = tool.get("description")
    function.__wrapped__ = bind
    return function


def make_signature(name, schema):
    """A function with the parameters of a JSON Schema, which returns its arguments by name; those left out are "...".

    What cannot be a parameter, such as "user-id", is given as **{"user-id": 1}.
    """
    from keyword import iskeyword

    properties = schema.get("properties", {})
    required = set(schema.get("required", ()))
    # ASCII only: Python takes different spellings of other letters for one name.
    plain = [
        each
        for each in properties
        if each.isascii() and each.isidentifier() and each[:2] != "__" and not iskeyword(each)
    ]
    plain.sort(key=lambda each: each not in required)
    parameters = [each if each in required else each + "=..." for each in plain]
    values = ["%r: %s" % (each, each) for each in plain]
    if len(plain) < len(properties) or schema.get("additionalProperties", False) is not False:
        others = "others"
        while others in properties:
            others += "_"
        parameters.append("**" + others)
        values.append("**" + others)
    scope = {"__builtins__": {}}
    exec("def %s(%s):\n return {%s}" % (name, ", ".join(parameters), ", ".join(values)), scope)
    return scope[name]
