"""OpenStack Swift with its S3 interface, whole, in one process: serve.py <folder> <port>.

Prints the port once it answers. One replica, one disk (the folder), one user: what a test needs.
"""

import logging
import os
import sys

import eventlet

eventlet.patcher.monkey_patch(all=True)

from eventlet import wsgi
from swift.common import storage_policy, utils
from swift.common.ring import RingBuilder
from swift.common.wsgi import loadapp

FOLDER, PORT = os.path.abspath(sys.argv[1]), int(sys.argv[2])
HOST = "127.0.0.1"

PROXY = """
[pipeline:main]
pipeline = catch_errors listing_formats s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:slo]
use = egg:swift#slo
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing-secret .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
# Few, so that small tests meet lists of several pages.
max_bucket_listing = 3
"""


def write(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def save_ring(kind, port):
    builder = RingBuilder(2, 1, 0)
    builder.add_dev({
        "id": 0, "region": 0, "zone": 0, "device": "disk", "weight": 1.0,
        "ip": HOST, "port": port, "replication_ip": HOST, "replication_port": port,
    })
    builder.rebalance()
    builder.get_ring().save(os.path.join(FOLDER, kind + ".ring.gz"))


class Cache:
    """What Swift asks of memcached, within this process."""

    def __init__(self):
        self.values = {}

    def get(self, key, **_):
        return self.values.get(key)

    def set(self, key, value, *_, **__):
        self.values[key] = value

    def incr(self, key, delta=1, **_):
        self.values[key] = int(self.values.get(key, 0)) + delta
        return self.values[key]

    def delete(self, key, **_):
        self.values.pop(key, None)


def with_cache(app):
    cache = Cache()

    def call(env, start_response):
        env["swift.cache"] = cache
        return app(env, start_response)

    return call


def start(socket, name, parts):
    common = "[DEFAULT]\nswift_dir = %s\ndevices = %s\nmount_check = false\nuser = %s\n"
    head = common % (FOLDER, FOLDER, os.environ.get("USER", "root"))
    app = with_cache(loadapp(write(name + ".conf", head + parts)))
    return eventlet.spawn(wsgi.server, socket, app, log=log, log_output=False)


logging.getLogger().addHandler(logging.StreamHandler())
log = logging.getLogger("swift-test")
os.makedirs(os.path.join(FOLDER, "disk"), exist_ok=True)
utils.SWIFT_CONF_FILE = write(
    "swift.conf", "[swift-hash]\n[storage-policy:0]\nname = only\ndefault = yes\n"
)
utils.HASH_PATH_SUFFIX = b"test"
storage_policy.reload_storage_policies()

for kind in ("account", "container", "object"):
    socket = eventlet.listen((HOST, 0))
    save_ring(kind, socket.getsockname()[1])
    part = "[pipeline:main]\npipeline = %s-server\n[app:%s-server]\nuse = egg:swift#%s\n"
    start(socket, kind, part % (kind, kind, kind))
socket = eventlet.listen((HOST, PORT))
proxy = start(socket, "proxy", PROXY)
print(socket.getsockname()[1], flush=True)
proxy.wait()
