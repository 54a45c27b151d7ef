"""Uses numpy and pandas as programs do; prints a JSON object of failures, name to error."""

import json
import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd


def linear_algebra():
    matrix = np.random.default_rng(1).random((400, 400)) + 400 * np.eye(400)
    assert np.allclose(matrix @ np.linalg.inv(matrix), np.eye(400))
    left, values, right = np.linalg.svd(matrix)
    assert np.allclose((left * values) @ right, matrix)
    assert np.allclose(np.fft.ifft(np.fft.fft(matrix[0])), matrix[0])


def threads():
    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(lambda n: np.ones((n, n)).dot(np.ones(n))[0], [100, 300])) == [100, 300]


def total(numbers):
    return float(numbers @ numbers)


def processes(method):
    rows = np.arange(8.0).reshape(4, 2)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(total, rows) == [1, 13, 41, 85]


def fork():
    processes("fork")


def spawn():
    processes("spawn")


def mapped_arrays():
    array = np.memmap("/tmp/array", dtype=np.float64, mode="w+", shape=(1000, 100))
    array[:] = 2
    array.flush()
    assert np.memmap("/tmp/array", dtype=np.float64, mode="r").sum() == 200_000
    np.save("/tmp/array.npy", array)
    assert np.load("/tmp/array.npy", mmap_mode="r")[-1, -1] == 2
    np.savez_compressed("/tmp/arrays", a=array)
    assert np.load("/tmp/arrays.npz")["a"].shape == (1000, 100)


def shared_arrays():
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=800)
    array = np.ndarray((100,), buffer=memory.buf)
    array[:] = 1
    assert array.sum() == 100
    del array
    memory.close()
    memory.unlink()


def tables():
    rows = ["%s,2026-01-%02d,%d" % ("ab"[i % 2], i + 1, i) for i in range(20)]
    with open("/tmp/table.csv", "w") as file:
        file.write("\n".join(["city,day,degrees", *rows]))
    table = pd.read_csv("/tmp/table.csv", parse_dates=["day"])
    assert pd.read_csv("/tmp/table.csv", memory_map=True, engine="c").equals(pd.read_csv("/tmp/table.csv"))
    assert table.groupby("city").degrees.sum().to_dict() == {"a": 90, "b": 100}
    assert table.set_index("day").degrees.resample("10D").mean().tolist() == [4.5, 14.5]
    assert table.day.dt.tz_localize("Europe/Berlin").dt.tz_convert("UTC").notna().all()
    assert len(table.merge(table, on="city")) == 200
    table.to_pickle("/tmp/table.pickle")
    assert pd.read_pickle("/tmp/table.pickle").equals(table)
    table.to_json("/tmp/table.json")
    assert pd.read_json("/tmp/table.json").shape == (20, 3)
    with sqlite3.connect("/tmp/table.db") as connection:
        table.to_sql("t", connection)
        assert len(pd.read_sql("select * from t", connection)) == 20


if __name__ == "__main__":
    failed = {}
    for task in (linear_algebra, threads, fork, spawn, mapped_arrays, shared_arrays, tables):
        try:
            task()
        except BaseException as error:
            failed[task.__name__] = repr(error)
    print(json.dumps(failed))
