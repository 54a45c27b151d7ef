import { globSync, readFileSync } from "node:fs";
import { parse } from "smol-toml";
import { describe, expect, test } from "vitest";
import { Config, loadConfig } from "../../shared/config/config.ts";
import { BatchRequest } from "../../shared/wire/client/batch.ts";
import { ExecuteRequest } from "../../shared/wire/client/submission.ts";

const pages = globSync(["*.md", "docs/**/*.md"]).filter((page) => page !== "CHANGELOG.md");
const texts = pages.map((page) => ({ page, text: readFileSync(page, "utf8") }));

function blocksOf(language: string): { page: string; block: string }[] {
  const fence = new RegExp(`^( *)\`\`\`${language}\n([^]*?)^\\1\`\`\``, "gm");
  return texts.flatMap(({ page, text }) =>
    [...text.matchAll(fence)].map(([, , block = ""]) => ({ page, block })),
  );
}

test.each(blocksOf("toml"))("$page: an example is accepted as airlock.toml", ({ block }) => {
  expect(() => loadConfig(parse(block), {})).not.toThrow();
});

const requests = blocksOf("sh").flatMap(({ page, block }) =>
  [...block.matchAll(/\/execute(\/batch)?\b[^]*?-d '([^']*)'/g)].map(([, batch, body = ""]) => ({
    page,
    schema: batch === undefined ? ExecuteRequest : BatchRequest,
    body,
  })),
);

test.each(requests)("$page: the body $body is a request", ({ schema, body }) => {
  expect(schema.safeParse(JSON.parse(body)).error).toBeUndefined();
});

test("there are examples of both", () => {
  expect(blocksOf("toml").length).toBeGreaterThan(5);
  expect(requests.length).toBeGreaterThan(4);
});

describe.each(texts)("$page", ({ text }) => {
  test("every npm script that it names exists", () => {
    const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as {
      scripts: Record<string, string>;
    };
    const named = [...text.matchAll(/npm run ([\w:-]+)/g)].map(([, name = ""]) => name);
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
  });

  test("every variable that it names is a key's, compose.yaml's or a client's", () => {
    const own =
      readFileSync("compose.yaml", "utf8") +
      readFileSync("clients/cli/src/settings.ts", "utf8") +
      readFileSync("shared/process/config-file.node.ts", "utf8");
    const named = [...text.matchAll(/\bAIRLOCK_[A-Z_]+\b(?!_)/g)].map(([name]) => name);
    const keys = Object.keys(Config.shape).map((key) => `AIRLOCK_${key.toUpperCase()}`);
    expect(named.filter((name) => !keys.includes(name) && !own.includes(name))).toEqual([]);
  });
});
