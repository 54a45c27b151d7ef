import { z } from "zod";

/**
 * The lines of a job type's `dockerfile`: what they mean, and what of them a build has no use for. Source:
 * docs.docker.com/reference/dockerfile.
 */

/**
 * One step of a build, run in the container that becomes the image. `line` is a line of the job type's
 * `dockerfile`.
 */
export const BuildStep = z.discriminatedUnion("kind", [
  z.object({
    kind: z.enum(["apt", "pip", "npm"]),
    packages: z.array(z.string()).min(1),
    /** They are a tenant's: pip and npm run without rights, and start no package's code. */
    own: z.literal(true).optional(),
  }),
  /** A command; `shown` is its text in the file. */
  z.object({
    kind: z.literal("run"),
    line: z.int(),
    shown: z.string(),
    argv: z.array(z.string()).min(1),
  }),
  /** A file to write; `mode` is its permissions, `expand` whether variables in its text are replaced. */
  z.object({
    kind: z.literal("file"),
    line: z.int(),
    path: z.string(),
    mode: z.int(),
    text: z.string(),
    expand: z.boolean(),
  }),
  /** An instruction without a command or a file, such as `ENV A="b"`. */
  z.object({ kind: z.literal("set"), line: z.int(), change: z.string() }),
]);
export type BuildStep = z.infer<typeof BuildStep>;

type PackageStep = Extract<BuildStep, { packages: string[] }>;
/** A line that a build carries out, as it travels to the agent: variables stand in it as written. */
type LineStep = Exclude<BuildStep, PackageStep>;
type StepOf<Kind> = Extract<LineStep, { kind: Kind }>;

/** What logs and messages call a step. */
export function titleOf(step: BuildStep): string {
  if ("packages" in step) return `${step.kind}: ${shorten(step.packages.join(" "))}`;
  const what =
    step.kind === "run"
      ? `RUN ${step.shown}`
      : step.kind === "file"
        ? `COPY ${step.path}`
        : step.change;
  return `dockerfile line ${step.line}: ${shorten(what)}`;
}

function shorten(text: string): string {
  const line = text.replaceAll(/\s+/g, " ");
  return line.length > 100 ? `${line.slice(0, 99)}…` : line;
}

type Variables = Readonly<Record<string, string>>;

function fail(line: number, message: string): never {
  throw new Error(`dockerfile line ${line}: ${message}`);
}

/** Instructions that change no file. Those behind LABEL are for people who run the image by itself. */
const settings =
  "ENV ARG WORKDIR USER LABEL CMD ENTRYPOINT EXPOSE VOLUME HEALTHCHECK STOPSIGNAL MAINTAINER".split(
    " ",
  );

interface Parsed {
  readonly from?: string;
  readonly steps: LineStep[];
}

/** Polls and submissions ask for the same few texts. */
const parsed = new Map<string, Parsed>();

/**
 * The image that a Dockerfile starts from, if it says so, and its steps.
 *
 * @throws Error that names the line.
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
  let globals: Variables = {};
  for (const instruction of readInstructions(text)) {
    const { line, name, rest, heredocs } = instruction;
    if (rest === "") fail(line, `${name} needs an argument`);
    const isCopy = name === "COPY" || name === "ADD";
    const [flags = ""] = /^(?:--[\w-]+(?:=\S*)?\s*)*/.exec(rest) ?? [];
    const flag = flags.match(/--[\w-]+/g)?.find((one) => !isCopy || one !== "--chmod");
    if (flag && (isCopy || name === "RUN")) fail(line, `${name} takes no ${flag}`);
    if (name === "FROM") {
      if (from !== undefined) fail(line, "a build has one FROM");
      if (steps.some((step) => step.kind !== "set" || !step.change.startsWith("ARG ")))
        fail(line, "FROM comes before all lines but ARG");
      const [image = "", as = "AS", , ...more] = splitWords(rest);
      if (flag || more.length > 0 || as.toUpperCase() !== "AS")
        fail(line, "FROM takes the name of an image, without options");
      globals = resolveSteps(steps.splice(0), {}).variables;
      from = expand(image, globals, line);
      if (from === "") fail(line, "FROM needs the name of an image");
    } else if (name === "RUN") {
      const argv = listOf(rest) ?? [...shell, script(instruction)];
      steps.push({ kind: "run", line, shown: rest, argv });
    } else if (isCopy) {
      steps.push(...copiedFiles(instruction));
    } else if (name === "SHELL") {
      shell = listOf(rest) ?? fail(line, 'SHELL takes a list such as ["/bin/bash", "-c"]');
    } else if (settings.includes(name)) {
      const before = name === "ARG" && !rest.includes("=") ? globals[rest] : undefined;
      const value = before === undefined ? "" : `=${quoted(before)}`;
      steps.push({ kind: "set", line, change: `${name} ${rest}${value}` });
    } else {
      fail(
        line,
        name === "ONBUILD"
          ? "ONBUILD is not supported: write its instruction alone"
          : `there is no instruction ${name}`,
      );
    }
    if (heredocs.length > 0 && !isCopy && name !== "RUN") fail(line, `${name} takes no heredoc`);
  }
  // Finds what can only fail when variables are replaced.
  resolveSteps(steps, {});
  return { ...(from !== undefined && { from }), steps };
}

type Instruction = ReturnType<typeof readInstructions>[number];

const isNothing = (line: string): boolean => /^\s*(#|$)/.test(line);
const heredocStart = /(?<=^|\s)\d*<<(-?)(["']?)([A-Za-z_][\w.-]*)\2(?=[\s|>;&]|$)/;
const heredocOrQuotes = new RegExp(
  String.raw`${heredocStart.source}|"(?:\\[^]|[^"\\])*"|'[^']*'`,
  "g",
);

/** Joins lines that go on, leaves out comments, and takes heredocs to their instructions. */
function readInstructions(text: string) {
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/);
  let escape = "\\";
  let at = 0;
  for (; ; at += 1) {
    const [, key, value = ""] = /^#\s*(\w+)\s*=\s*(.+?)\s*$/.exec(lines[at] ?? "") ?? [];
    if (key === undefined) break;
    if (key.toLowerCase() !== "escape") continue;
    if (value !== "\\" && value !== "`") fail(at + 1, "escape is \\ or `");
    escape = value;
  }
  const goesOn = escape === "`" ? /`[ \t]*$/ : /\\[ \t]*$/;
  const found = [];
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
    const marks = listOf(rest) ? [] : [...rest.matchAll(heredocOrQuotes)];
    const heredocs = marks.flatMap(([, dash, quote, end]) => {
      if (end === undefined) return [];
      const body = lines.slice(at).map((one) => (dash ? one.replace(/^\t+/, "") : one));
      const length = body.indexOf(end);
      if (length < 0) fail(line, `the heredoc has no end: add a line with ${end} alone`);
      at += length + 1;
      const own = body.slice(0, length).map((one) => `${one}\n`);
      return { name: end, text: own.join(""), expand: quote === "" };
    });
    // From here on the escape is a backslash.
    const plain =
      escape === "\\" ? rest : rest.replaceAll(/`([^])|\\/g, (_, one) => `\\${one ?? "\\"}`);
    found.push({ line, name: name.toUpperCase(), rest: plain, heredocs });
  }
  return found;
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

function copiedFiles({ line, name, rest, heredocs }: Instruction): StepOf<"file">[] {
  const words = splitWords(rest).filter((word) => !word.startsWith("--"));
  const [to = "", ...more] = words.filter((word) => !heredocStart.test(word));
  if (heredocs.length === 0 || more.length > 0) {
    const form = `${name} takes a heredoc (${name} <<EOF /opt/x)`;
    fail(line, `${form}: no files are sent with a build; RUN can fetch them`);
  }
  const [, digits = "644"] = /--chmod=(\S+)/.exec(rest) ?? [];
  if (!/^[0-7]{3,4}$/.test(digits)) fail(line, "--chmod takes a number such as 755");
  const isFolder = to.endsWith("/");
  if (to === "") fail(line, `${name} needs a path`);
  if (heredocs.length > 1 && !isFolder) fail(line, `${name} needs a folder with a / at its end`);
  return heredocs.map(({ name: file, ...heredoc }) => {
    const path = isFolder ? to + file : to;
    return { kind: "file", line, path, mode: Number.parseInt(digits, 8), ...heredoc };
  });
}

const List = z.array(z.string()).min(1);

/** The words of an instruction in the form of a JSON list. */
function listOf(text: string): string[] | undefined {
  try {
    return List.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** A step as it runs: its place among the steps, from 1, and variables replaced. */
export type ReadyStep = { readonly number: number } & (
  | PackageStep
  | Omit<StepOf<"file">, "expand">
  /** `args` are values of ARG, which the image does not keep. */
  | (StepOf<"run"> & { args: Variables; cwd: string; user: string })
  /** Instructions of the commit that makes the image. */
  | { kind: "set"; line: number; changes: readonly string[] }
);

/**
 * Carries out what changes no file: ENV, ARG, WORKDIR, USER.
 *
 * @param image The environment of the image that the build starts from.
 * @returns the other steps, notes on lines that are skipped, and what the variables are at the end.
 * @throws Error that names the line.
 */
export function resolveSteps(steps: readonly BuildStep[], image: Variables) {
  const ready: ReadyStep[] = [];
  const notes: string[] = [];
  let env = image;
  let args: Variables = {};
  let [cwd, user] = ["/", ""];
  for (const [at, step] of steps.entries()) {
    const number = at + 1;
    if ("packages" in step) {
      ready.push({ ...step, number });
      continue;
    }
    const { line } = step;
    const variables = { ...args, ...env };
    const value = (text: string, hasQuotes?: boolean) => expand(text, variables, line, hasQuotes);
    if (step.kind === "run") {
      ready.push({ ...step, number, args, cwd, user });
    } else if (step.kind === "file") {
      const { expand: isTemplate, ...file } = step;
      const text = isTemplate ? value(step.text, false) : step.text;
      ready.push({ ...file, number, path: joined(cwd, value(step.path)), text });
    } else {
      const [, name = "", rest = ""] = /^(\w+) ([^]*)$/.exec(step.change) ?? [];
      if (name === "WORKDIR") {
        cwd = joined(cwd, value(rest));
      } else if (name === "USER") {
        user = value(rest);
      } else if (name === "ARG") {
        args = { ...args, ...Object.fromEntries(pairsOf(name, rest, variables, line)) };
      } else if (name === "ENV" || name === "LABEL") {
        const pairs = pairsOf(name, rest, variables, line);
        if (name === "ENV") env = { ...env, ...Object.fromEntries(pairs) };
        const changes = pairs.map(([key, text]) => `${name} ${key}=${quoted(text)}`);
        ready.push({ kind: "set", number, line, changes });
      } else {
        notes.push(`dockerfile line ${line}: ${name} is skipped: it has no meaning for jobs`);
      }
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
    const [, written = "", value] = /^([^=]+)=([^]*)$/.exec(word) ?? [];
    const key = expand(written, variables, line);
    if (value === undefined) {
      const why =
        name === "ARG"
          ? "needs a default (ARG NAME=value): builds have no arguments"
          : "has no value";
      fail(line, `${name} ${word} ${why}`);
    }
    if (name !== "LABEL" && !/^[A-Za-z_]\w*$/.test(key))
      fail(line, `${key} is no name of a variable`);
    if (/\s|"|^io\.airlock\./.test(key))
      fail(line, `${key} is no name of a label that a build may set`);
    return [key, expand(value, variables, line)] as const;
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

/** The word of a variable may have variables, but none with a word of its own. */
const variable = /^\$(?:(\w+)|\{(\w+)(?:(:?)([-+])((?:[^{}]|\$\{\w+\})*))?\})/;

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
      const [whole, plain, name = plain ?? "", colon, or, rest = ""] =
        variable.exec(text.slice(at)) ??
        fail(line, "variables have the forms $NAME, ${NAME}, ${NAME:-word} and ${NAME:+word}");
      const value = Object.hasOwn(variables, name) ? variables[name] : undefined;
      const isThere = colon ? Boolean(value) : value !== undefined;
      const word = expand(rest, variables, line);
      const [there, missing] = or === "+" ? [word, ""] : [value ?? "", word];
      out += isThere ? there : missing;
      at += whole.length - 1;
    } else {
      out += sign;
    }
  }
  return out;
}
