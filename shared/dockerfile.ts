/**
 * The lines of a job type's `dockerfile`: what they mean, and what of them a build has no use for. Source:
 * docs.docker.com/reference/dockerfile.
 */

/** A line that a build carries out, as it travels to the agent: variables stand in it as written. */
type LineStep = RunStep | FileStep | { kind: "set"; line: number; change: string };

interface RunStep {
  kind: "run";
  line: number;
  shown: string;
  argv: string[];
}

interface FileStep {
  kind: "file";
  line: number;
  path: string;
  mode: number;
  text: string;
  /** Whether variables in the text are replaced: its heredoc's name has no quotes. */
  expand: boolean;
}

interface PackageStep {
  readonly kind: "apt" | "pip" | "npm";
  readonly packages: readonly string[];
}

/** Reports the line of the Dockerfile. */
export class DockerfileError extends Error {
  override name = "DockerfileError";

  constructor(line: number, message: string) {
    super(`dockerfile line ${line}: ${message}`);
  }
}

interface Instruction {
  readonly line: number;
  readonly name: string;
  readonly rest: string;
  readonly heredocs: readonly Heredoc[];
}

interface Heredoc {
  readonly name: string;
  readonly text: string;
  readonly expand: boolean;
}

type Variables = Readonly<Record<string, string>>;

/** Instructions for those who run an image by itself. */
const skipped = [
  "CMD",
  "ENTRYPOINT",
  "EXPOSE",
  "VOLUME",
  "HEALTHCHECK",
  "STOPSIGNAL",
  "MAINTAINER",
];
const settings = ["ENV", "ARG", "WORKDIR", "USER", "LABEL", ...skipped];

interface Parsed {
  readonly from?: string;
  readonly steps: LineStep[];
}

/** Polls and submissions ask for the same few texts. */
const parsed = new Map<string, Parsed>();

/**
 * The image that a Dockerfile starts from, if it says so, and its steps.
 *
 * @throws DockerfileError
 */
export function parseDockerfile(text: string): Parsed {
  const found = parsed.get(text) ?? parse(text);
  parsed.set(text, found);
  return found;
}

function parse(text: string): Parsed {
  const steps: LineStep[] = [];
  let shell = ["/bin/sh", "-c"];
  let from: string | undefined;
  const globals: Record<string, string> = {};
  for (const instruction of readInstructions(text)) {
    const { line, name, rest, heredocs } = instruction;
    const fail = (message: string): never => {
      throw new DockerfileError(line, message);
    };
    const flags = leadingFlags(rest);
    if (rest === "") fail(`${name} needs an argument`);
    if (name === "FROM") {
      if (from !== undefined) fail("a build has one FROM");
      if (steps.some((step) => step.kind !== "set" || !step.change.startsWith("ARG "))) {
        fail("FROM comes first");
      }
      const [image = "", as, , ...more] = splitWords(rest);
      const isWhole = more.length === 0 && (as === undefined || as.toUpperCase() === "AS");
      if (flags.length > 0 || !isWhole) fail("FROM takes the name of an image alone");
      from = expand(image, resolveSteps(steps, {}).variables, line);
      if (from === "") fail("FROM needs the name of an image");
      Object.assign(globals, resolveSteps(steps.splice(0), {}).variables);
    } else if (name === "RUN") {
      if (flags.length > 0) fail(`RUN takes no ${flags[0]}`);
      steps.push({
        kind: "run",
        line,
        shown: rest,
        argv: jsonList(rest) ?? [...shell, script(instruction)],
      });
    } else if (name === "COPY" || name === "ADD") {
      steps.push(...copiedFiles(instruction, flags));
    } else if (name === "SHELL") {
      shell = jsonList(rest) ?? fail('SHELL takes a list such as ["/bin/bash", "-c"]');
    } else if (settings.includes(name)) {
      const change = `${name} ${rest}`;
      const bare = name === "ARG" && !rest.includes("=") ? globals[rest] : undefined;
      steps.push({
        kind: "set",
        line,
        change: bare === undefined ? change : `ARG ${rest}=${quoted(bare)}`,
      });
    } else {
      fail(name === "ONBUILD" ? "ONBUILD has no use here" : `there is no instruction ${name}`);
    }
    if (heredocs.length > 0 && !["RUN", "COPY", "ADD"].includes(name)) {
      fail(`${name} takes no heredoc`);
    }
  }
  // Finds what can only fail when variables are replaced.
  resolveSteps(steps, {});
  return { ...(from !== undefined && { from }), steps };
}

const isNothing = (line: string): boolean => /^\s*(#|$)/.test(line);

/** Joins lines that go on, leaves out comments, and takes heredocs to their instructions. */
function readInstructions(text: string): Instruction[] {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  let escape = "\\";
  let at = 0;
  for (; at < lines.length; at += 1) {
    const [, key, value] = /^#\s*(\w+)\s*=\s*(.+?)\s*$/.exec(lines[at]!) ?? [];
    if (key === undefined) break;
    if (key.toLowerCase() !== "escape") continue;
    if (value !== "\\" && value !== "`") throw new DockerfileError(at + 1, "escape is \\ or `");
    escape = value;
  }
  const goesOn = escape === "`" ? /`[ \t]*$/ : /\\[ \t]*$/;
  const found: Instruction[] = [];
  while (at < lines.length) {
    const line = at + 1;
    let joined = "";
    for (let more = !isNothing(lines[at]!); more && at < lines.length; at += 1) {
      const part = lines[at]!;
      if (isNothing(part)) continue;
      more = goesOn.test(part);
      joined += part.replace(goesOn, "");
    }
    if (joined === "") at += 1;
    const [, name = "", rest = ""] = /^\s*(\S+)\s*([^]*?)\s*$/.exec(joined) ?? [];
    if (name === "") continue;
    const isList = jsonList(rest) !== undefined;
    const heredocs = (isList ? [] : heredocNames(rest)).map(({ end, isIndented, expand }) => {
      const body: string[] = [];
      for (;;) {
        const raw = lines[at];
        if (raw === undefined) throw new DockerfileError(line, `the heredoc ${end} has no end`);
        at += 1;
        const one = isIndented ? raw.replace(/^\t+/, "") : raw;
        if (one === end) break;
        body.push(`${one}\n`);
      }
      return { name: end, text: body.join(""), expand };
    });
    // From here on the escape is a backslash.
    const plain =
      escape === "\\" ? rest : rest.replaceAll(/`([^])|\\/g, (_, one) => `\\${one ?? "\\"}`);
    found.push({ line, name: name.toUpperCase(), rest: plain, heredocs });
  }
  return found;
}

const heredocStart = /(?<=^|\s)\d*<<(-?)(["']?)([A-Za-z_][\w.-]*)\2(?=[\s|>;&]|$)/;

function heredocNames(rest: string) {
  const quotes = /"(?:\\[^]|[^"\\])*"|'[^']*'/;
  const either = new RegExp(`${heredocStart.source}|${quotes.source}`, "g");
  return [...rest.matchAll(either)].flatMap(([, indented, quote, end]) =>
    end === undefined ? [] : [{ end, isIndented: indented === "-", expand: quote === "" }],
  );
}

/** What the shell of a RUN gets. A heredoc by itself is the script; one of another program begins with #!. */
function script({ rest, heredocs }: Instruction): string {
  const [first, ...others] = heredocs;
  if (first === undefined) return rest;
  const isAlone = others.length === 0 && rest.replace(heredocStart, "").trim() === "";
  if (!isAlone) return [rest, ...heredocs.map(({ text, name }) => text + name)].join("\n") + "\n";
  if (!first.text.startsWith("#!")) return first.text;
  const write = `f=$(mktemp) && cat >"$f" <<'${first.name}' && chmod 700 "$f" && "$f"`;
  return `${write}\n${first.text}${first.name}\n`;
}

function copiedFiles({ line, name, rest, heredocs }: Instruction, flags: string[]): FileStep[] {
  const other = flags.find((flag) => flag !== "--chmod");
  if (other !== undefined) throw new DockerfileError(line, `${name} takes no ${other}`);
  const words = splitWords(rest).filter((word) => !word.startsWith("--"));
  const [to = "", ...more] = words.filter((word) => !heredocStart.test(word));
  if (heredocs.length === 0 || more.length > 0) {
    throw new DockerfileError(
      line,
      `${name} takes a heredoc (${name} <<EOF /opt/x): no files are sent with a build; RUN can fetch them`,
    );
  }
  const [, digits = "644"] = /--chmod=(\S+)/.exec(rest) ?? [];
  if (!/^[0-7]{3,4}$/.test(digits)) {
    throw new DockerfileError(line, "--chmod takes a number such as 755");
  }
  if (to === "" || (heredocs.length > 1 && !to.endsWith("/"))) {
    throw new DockerfileError(
      line,
      `${name} needs a ${to === "" ? "path" : "folder with a / at its end"}`,
    );
  }
  return heredocs.map(({ name: file, text, expand }) => {
    const path = to.endsWith("/") ? to + file : to;
    return { kind: "file", line, path, mode: Number.parseInt(digits, 8), text, expand };
  });
}

function leadingFlags(rest: string): string[] {
  const [flags = ""] = /^(?:--[\w-]+(?:=\S*)?\s*)*/.exec(rest) ?? [];
  return flags.match(/--[\w-]+/g) ?? [];
}

function jsonList(text: string): string[] | undefined {
  try {
    const list: unknown = JSON.parse(text);
    const isList = Array.isArray(list) && list.length > 0;
    return isList && list.every((one) => typeof one === "string") ? list : undefined;
  } catch {
    return undefined;
  }
}

/** A step as it runs: its place among the steps, from 1, and variables replaced. */
export type ReadyStep = { readonly number: number } & (
  | PackageStep
  | Omit<FileStep, "expand">
  | (RunStep & {
      /** Values of ARG, which the image does not keep. */
      readonly args: Variables;
      readonly cwd: string;
      readonly user: string;
    })
  /** Instructions of the commit that makes the image. */
  | { readonly kind: "set"; readonly line: number; readonly changes: readonly string[] }
);

/**
 * Carries out what changes no file: ENV, ARG, WORKDIR, USER.
 *
 * @param image The environment of the image that the build starts from.
 * @returns the other steps, notes on lines that are skipped, and what the variables are at the end.
 * @throws DockerfileError
 */
export function resolveSteps(steps: readonly (PackageStep | LineStep)[], image: Variables) {
  const ready: ReadyStep[] = [];
  const notes: string[] = [];
  let env = image;
  let args: Variables = {};
  let [cwd, user] = ["/", ""];
  for (const [at, step] of steps.entries()) {
    const number = at + 1;
    const variables = { ...args, ...env };
    if (step.kind === "run") {
      ready.push({ ...step, number, args, cwd, user });
    } else if (step.kind === "file") {
      const { expand: isTemplate, ...file } = step;
      const path = joined(cwd, expand(step.path, variables, step.line));
      const text = isTemplate ? expand(step.text, variables, step.line, false) : step.text;
      ready.push({ ...file, number, path, text });
    } else if (step.kind === "set") {
      const { line } = step;
      const [, name = "", rest = ""] = /^(\w+) ([^]*)$/.exec(step.change) ?? [];
      const value = (): string => expand(rest, variables, line);
      if (name === "ENV" || name === "LABEL") {
        const pairs = pairsOf(name, rest, variables, line);
        if (name === "ENV") env = { ...env, ...Object.fromEntries(pairs) };
        const changes = pairs.map(([key, text]) => `${name} ${key}=${quoted(text)}`);
        ready.push({ kind: "set", number, line, changes });
      } else if (name === "ARG") {
        args = { ...args, ...Object.fromEntries(pairsOf(name, rest, variables, line)) };
      } else if (name === "WORKDIR") {
        cwd = joined(cwd, value());
      } else if (name === "USER") {
        user = value();
      } else {
        notes.push(`dockerfile line ${line}: ${name} is skipped: it has no meaning for jobs`);
      }
    } else {
      ready.push({ ...step, number });
    }
  }
  return { steps: ready, notes, variables: { ...args, ...env } };
}

function joined(folder: string, path: string): string {
  return path.startsWith("/") ? path : `${folder.replace(/\/$/, "")}/${path}`;
}

function pairsOf(name: string, rest: string, variables: Variables, line: number) {
  // The form without "=" takes the rest of the line.
  const [, old, text = ""] = (name !== "ARG" && /^([^\s="']+)\s+([^]+)$/.exec(rest)) || [];
  const words = old === undefined ? splitWords(rest) : [`${old}=${text}`];
  return words.map((word) => {
    const [, key = "", value] = /^([^=]+)=([^]*)$/.exec(word) ?? [];
    const plain = expand(key, variables, line);
    if (value === undefined) {
      const why = name === "ARG" ? "has no default, and builds have no arguments" : "has no value";
      throw new DockerfileError(line, `${name} ${word} ${why}`);
    }
    if (name !== "LABEL" && !/^[A-Za-z_]\w*$/.test(plain)) {
      throw new DockerfileError(line, `${plain} is no name of a variable`);
    }
    if (/\s|"/.test(plain) || plain.startsWith("io.airlock.")) {
      throw new DockerfileError(line, `${plain} is no name of a label that a build may set`);
    }
    return [plain, expand(value, variables, line)] as const;
  });
}

/** A value as engines read it in the instructions of a commit. */
function quoted(text: string): string {
  return /^[\w./:,@%+=-]+$/.test(text) ? text : `"${text.replaceAll(/["\\$]/g, "\\$&")}"`;
}

/** Splits at white space outside of quotes; the quotes stay. */
function splitWords(text: string): string[] {
  return text.match(/(?:\\[^]|"(?:\\[^]|[^"\\])*"|'[^']*'|[^\s\\])+/g) ?? [];
}

/** Replaces the variables of a text, and removes its quotes unless it is that of a file. */
function expand(text: string, variables: Variables, line: number, hasQuotes = true): string {
  let out = "";
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at]!;
    const next = text[at + 1] ?? "";
    if (hasQuotes && (sign === "'" || sign === '"') && (quote === "" || quote === sign)) {
      quote = quote === "" ? sign : "";
    } else if (quote === "'") {
      out += sign;
    } else if (sign === "\\") {
      const isKept = (!hasQuotes || quote === '"') && !/[$\\"]/.test(next);
      out += isKept ? sign + next : next;
      at += 1;
    } else if (sign === "$" && /[A-Za-z_{]/.test(next)) {
      const [value, length] = variable(text.slice(at), variables, line);
      out += value;
      at += length - 1;
    } else {
      out += sign;
    }
  }
  return out;
}

/** The word may have variables, but none with a word of its own. */
const braced = /^\$\{(\w+)(?:(:?)([-+])((?:[^{}]|\$\{\w+\})*))?\}/;

/** The value of the variable that a text begins with, and how much of the text names it. */
function variable(text: string, variables: Variables, line: number): [string, number] {
  const valueOf = (name: string) => (Object.hasOwn(variables, name) ? variables[name] : undefined);
  const [plain, simple] = /^\$(\w+)/.exec(text) ?? [];
  if (plain !== undefined) return [valueOf(simple!) ?? "", plain.length];
  const [whole, name = "", colon, sign, rest = ""] = braced.exec(text) ?? [];
  if (whole === undefined) {
    const forms = "$NAME, ${NAME}, ${NAME:-word} and ${NAME:+word}";
    throw new DockerfileError(line, `variables have the forms ${forms}`);
  }
  const value = valueOf(name);
  if (sign === undefined) return [value ?? "", whole.length];
  const word = expand(rest, variables, line);
  const isThere = colon === ":" ? Boolean(value) : value !== undefined;
  const said = sign === "-" ? (isThere ? value! : word) : isThere ? word : "";
  return [said, whole.length];
}
