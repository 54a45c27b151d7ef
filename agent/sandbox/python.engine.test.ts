import { describe } from "vitest";
import { needs } from "../../scripts/testing/needs.ts";
import { hostPython } from "../../scripts/setup/find-python.ts";
import { pythonRows } from "../testing/python-rows.ts";

// Containers of other tests have the base image's Python; the lab has every promised one.
describe("this machine's Python", needs("root", "ip", "pip"), () => {
  pythonRows(hostPython);
});
