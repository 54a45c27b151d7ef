import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const SHARED = ["scripts", "shared", "node_modules", "package.json"];

/** Both stubs note what they do, with their pid, in a file that the test reads. */
const NOTE = `
import { appendFileSync } from "node:fs";
const note = (what: string) => appendFileSync("notes", what + " " + process.pid + "\\n");
process.on("disconnect", () => process.exit(0));
`;

const API = `${NOTE}
import { createServer } from "node:http";
if (process.env["STUB_API_FAILS"]) process.exit(7);
const answer = { success: true, stdout: "Python 3\\n", output: { sum: 42 }, error: null };
process.on("SIGTERM", () => { note("api-stops"); process.exit(0); });
const server = createServer((_request, response) => response.end(JSON.stringify(answer)));
server.listen(0, "127.0.0.1", () => {
  note("api-ready");
  process.send?.({ type: "ready", url: "http://127.0.0.1:" + server.address().port });
});
`;

const AGENT = `${NOTE}
let signals = 0;
process.on("SIGTERM", () => {
  signals += 1;
  note("agent-told-" + signals);
  const waitMs = signals > 1 ? 0 : Number(process.env["STUB_DRAIN_MS"] ?? 100);
  setTimeout(() => { note("agent-stops"); process.exit(0); }, waitMs);
});
note("agent-ready");
process.send?.({ type: "ready" });
`;

export type StubProject = {
  dir: string;
  /** What the stubs did so far, in order. */
  notes(): string[];
  /** The pid of the last stub that noted this. */
  pidOf(note: string): number;
};

/** A copy of this project, by links, whose API and agent only play their part towards npm start. */
export function stubProject(): StubProject {
  const dir = mkdtempSync(join(tmpdir(), "airlock-start-"));
  for (const name of SHARED) symlinkSync(resolve(name), join(dir, name));
  for (const [folder, file, text] of [
    ["api", "node.ts", API],
    ["agent", "main.ts", AGENT],
  ] as const) {
    mkdirSync(join(dir, folder));
    writeFileSync(join(dir, folder, file), text);
  }
  writeFileSync(join(dir, "notes"), "");
  const lines = (): string[][] =>
    readFileSync(join(dir, "notes"), "utf8")
      .trim()
      .split("\n")
      .map((line) => line.split(" "));
  return {
    dir,
    notes: () => lines().map(([what = ""]) => what),
    pidOf: (note) => Number(lines().findLast(([what]) => what === note)?.[1]),
  };
}
