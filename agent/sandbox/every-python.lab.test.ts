import { describe } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { findPython, promisedPythons } from "./testing/find-python.ts";
import { pythonRows } from "./testing/python-rows.ts";

for (const minor of promisedPythons) {
  describe(`Python ${minor}`, needs("root", `python${minor}`), () => {
    pythonRows(() => findPython(minor)!);
  });
}
