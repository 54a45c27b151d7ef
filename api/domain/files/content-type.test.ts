import { expect, test } from "vitest";
import { contentTypeOf } from "./content-type.ts";

const openXml = "application/vnd.openxmlformats-officedocument";

test.each([
  ["report.xlsx", `${openXml}.spreadsheetml.sheet`],
  ["report.docx", `${openXml}.wordprocessingml.document`],
  ["sub/table.PARQUET", "application/vnd.apache.parquet"],
  ["table.feather", "application/vnd.apache.arrow.file"],
  ["README.md", "text/markdown; charset=utf-8"],
  ["rows.jsonl", "application/x-ndjson"],
  ["rows.ndjson", "application/x-ndjson"],
  ["notebook.ipynb", "application/x-ipynb+json"],
  ["arrays.npz", "application/zip"],
  ["config.yaml", "text/yaml; charset=utf-8"],
  ["pyproject.toml", "application/toml"],
  ["main.py", "text/x-python; charset=utf-8"],
  ["table.tsv", "text/tab-separated-values; charset=utf-8"],
  ["run.log", "text/plain; charset=utf-8"],
])("%s is %s", (name, type) => {
  expect(contentTypeOf(name)).toBe(type);
});

test.each([
  ["table.csv", "text/csv; charset=utf-8"],
  ["a.txt", "text/plain; charset=utf-8"],
  ["page.html", "text/html; charset=utf-8"],
  ["code.js", "text/javascript; charset=utf-8"],
  ["plot.png", "image/png"],
  ["plot.svg", "image/svg+xml; charset=utf-8"],
  ["data.xml", "application/xml; charset=utf-8"],
  ["data.json", "application/json"],
  ["voice.opus", "audio/opus"],
  ["all.tar.gz", "application/gzip"],
])("%s stays %s", (name, type) => {
  expect(contentTypeOf(name)).toBe(type);
});

test.each(["Makefile", "csv", "a.unheard-of", "a.", ".env", "png/none"])(
  "%s is bytes of an unknown type",
  (name) => {
    expect(contentTypeOf(name)).toBe("application/octet-stream");
  },
);
