import { tmpdir } from "node:os";
import type { Logger } from "@logtape/logtape";
import { decodeUtf8 } from "../../shared/bytes.ts";
import { languages } from "../../shared/languages.ts";
import { describeError } from "../../shared/log-line.ts";
import type { ImageLanguages } from "../../shared/wire/agent/lease.ts";
import type { Leases } from "../lease/leases.ts";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import { abortable } from "../waiting/abortable.ts";
import type { ChangeSignal } from "../waiting/change-signal.ts";

/** Knows which of the usual languages images have. */
export type LanguageFinder = {
  /** By the reference of the image. A new object after each change. */
  readonly known: () => ImageLanguages;
  /** Looks into an image once, in a sandbox like its jobs', when the agent has nothing else to do. */
  readonly lookInto: (reference: string, request: SandboxRequest) => void;
  readonly close: () => Promise<void>;
};

export type LanguageFinderDeps = {
  readonly sandboxes: Pick<SandboxSource, "acquire" | "giveBack">;
  readonly leases: Pick<Leases, "free" | "size">;
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

/** A compiler that takes longer to say its version is of no use. */
const eachS = 10;
const timeoutMs = 60_000;

/** What to ask for each language: its programs, the arguments for the first one's version, the least version. */
const asked = Object.fromEntries(
  Object.entries(languages).map(
    ([name, { compile, run, programs, tellVersion = ["--version"], since = "0" }]) => {
      const first = [compile?.[0], run[0]].filter((one) => one && !one.startsWith("/tmp/"));
      return [name, [programs ?? first, tellVersion, since]];
    },
  ),
);

/** Prints the version of each language that is there, as JSON. */
const code = String.raw`
import json, os, re, shutil, subprocess
asked = json.loads(r"""${JSON.stringify(asked)}""")
os.environ["HOME"] = "/tmp"
found, said = {}, {}
def numbers(text):
    return [int(each) for each in text.split(".")]
for name, (programs, arguments, since) in asked.items():
    if None in map(shutil.which, programs):
        continue
    command = (programs[0], *arguments)
    try:
        if command not in said:
            said[command] = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=${eachS}, check=True).stdout.decode("utf-8", "replace")
        version = re.search(r"\d+(\.\d+)+", said[command])[0]
        if numbers(version) >= numbers(since):
            found[name] = version[:32]
    except (OSError, subprocess.SubprocessError, TypeError):
        pass
print(json.dumps(found))
`;

export function createLanguageFinder(deps: LanguageFinderDeps): LanguageFinder {
  const { sandboxes, leases, changes, log } = deps;
  const end = new AbortController();
  /** Images that were looked into, or will be. */
  const begun = new Set<string>();
  let known: ImageLanguages = {};
  let last: Promise<void> = Promise.resolve();

  async function look(request: SandboxRequest): Promise<Record<string, string>> {
    await abortable(
      changes.waitUntil(() => end.signal.aborted || leases.free() === leases.size),
      end.signal,
    );
    const sandbox = await sandboxes.acquire(request, end.signal);
    try {
      const caps = { streamBytes: 64 * 1024, artifactBytes: 0 };
      const job = { code, inputJson: "{}", timeoutMs, caps };
      const report = await sandbox.run(job, { signal: end.signal, spoolDir: tmpdir() });
      return JSON.parse(decodeUtf8(report.stdout)) as Record<string, string>;
    } finally {
      await sandboxes.giveBack(sandbox);
    }
  }

  async function note(reference: string, request: SandboxRequest): Promise<void> {
    try {
      known = { ...known, [reference]: await look(request) };
      changes.notify();
    } catch (error) {
      if (end.signal.aborted) return;
      log.warn("the languages of image {image} are not known: {reason}", {
        image: reference,
        reason: describeError(error),
      });
    }
  }

  return {
    known: () => known,
    lookInto(reference, request) {
      const { spec } = request;
      const place = `${reference} ${spec.image}`;
      if (begun.has(place) || spec.gpus.length > 0) return;
      begun.add(place);
      const plain = { ...request, tenant: "", packages: null, imports: [], files: [] };
      last = last.then(() => note(reference, plain));
    },
    async close() {
      end.abort();
      await last;
    },
  };
}
