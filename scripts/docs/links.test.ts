import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, test } from "vitest";

const pages = globSync(["*.md", "docs/**/*.md"]);

/** A heading as its address: the rules of GitHub. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

function anchorsOf(page: string): string[] {
  const text = readFileSync(page, "utf8").replaceAll(/^```[^]*?^```/gm, "");
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading));
}

test.each(pages)("every link of %s leads somewhere", (page) => {
  const links = [...readFileSync(page, "utf8").matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)];
  const broken = links.filter(([, path = "", anchor]) => {
    const target = path === "" ? page : normalize(join(dirname(page), path));
    if (!existsSync(target)) return true;
    return anchor !== undefined && !anchorsOf(target).includes(anchor);
  });
  expect(broken.map(([link]) => link)).toEqual([]);
});

test("the README leads to every page", () => {
  const readme = readFileSync("README.md", "utf8");
  const missing = pages.filter((page) => page !== "README.md" && !readme.includes(`(${page})`));
  expect(missing).toEqual([]);
});

test("every page except README and CHANGELOG begins with whom it is for", () => {
  const others = pages.filter((page) => !["README.md", "CHANGELOG.md"].includes(page));
  const silent = others.filter((page) => !/^# .+\n\nFor /.test(readFileSync(page, "utf8")));
  expect(silent).toEqual([]);
});

test("the README has at most 150 lines", () => {
  expect(readFileSync("README.md", "utf8").split("\n").length).toBeLessThanOrEqual(151);
});
