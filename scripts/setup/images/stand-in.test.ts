import { expect, test } from "vitest";
import { standInsFor } from "./stand-in.ts";

test.each([
  ["python:3.13-slim", ["trixie", "bookworm"]],
  ["python:3.13", ["trixie", "bookworm"]],
  ["docker.io/library/python:3.13.5-slim-bookworm", ["trixie", "bookworm"]],
  ["python:3.11-slim", ["bookworm"]],
  ["python:3.12-slim", []],
  ["python:3.13-alpine3.20", []],
  ["pytorch/pytorch:2.4", []],
  ["python", []],
])("%s can be replaced by Debian %j", (image, suites) => {
  expect(standInsFor(image).map((standIn) => standIn.suite)).toEqual(suites);
});
