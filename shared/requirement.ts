import { z } from "zod";

/** A dependency specifier without its URL form; the parts in one normal form. Source: PEP 508. */
export type Requirement = {
  /** Lower case, with "-" between words (PEP 503). */
  readonly name: string;
  readonly extras: readonly string[];
  /** For example ">=1.2"; no spaces. */
  readonly specifiers: readonly string[];
  /** For example `python_version < "3.9"`; empty if there is none. */
  readonly marker: string;
};

const identifier = "[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?";
const release = String.raw`v?(?:[0-9]+!)?[0-9]+(?:\.[0-9]+)`;
const suffix = [
  "(?:[-_.]?(?:alpha|a|beta|b|preview|pre|rc|c)[-_.]?[0-9]*)?",
  "(?:-[0-9]+|[-_.]?(?:post|rev|r)[-_.]?[0-9]*)?",
  "(?:[-_.]?dev[-_.]?[0-9]*)?",
  String.raw`(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?`,
].join("");
const version = `${release}*${suffix}`;

const tokens = {
  identifier: token(identifier),
  // Source: PEP 440, "Version specifiers".
  specifier: token(
    [
      String.raw`[=!]= *${release}*\.\*`,
      `~= *${release}+${suffix}`,
      `(?:===?|!=|<=?|>=?) *${version}`,
    ].join("|"),
  ),
  variable: token(
    "python_version|python_full_version|os_name|sys_platform|platform_release|platform_system|" +
      "platform_version|platform_machine|platform_python_implementation|implementation_name|" +
      "implementation_version|extra",
  ),
  // Leaves out characters with another meaning to pip or a shell: paths, comments, variables, escapes.
  string: token(`"[A-Z0-9 ._+*,=<>~!()-]*"|'[A-Z0-9 ._+*,=<>~!()-]*'`),
  comparison: token("===|[<>=!~]=|[<>]|in(?= |[\"'])|not +in(?= |[\"'])"),
  and: token("and(?![a-z0-9_])"),
  or: token("or(?![a-z0-9_])"),
};

function token(pattern: string): RegExp {
  return new RegExp(` *(${pattern}) *`, "iy");
}

/** Pip treats a name with one of these endings as a file. */
const archive = /\.(?:whl|zip|tar|tgz|tbz|txz|tlz|gz|bz2|xz|lzma)$/i;

/** Reads `one` at least once and as often as it matches; null if it does not match. */
function takeList(one: () => string | null, separates: () => boolean): string[] | null {
  const items: string[] = [];
  do {
    const item = one();
    if (item === null) return null;
    items.push(item);
  } while (separates());
  return items;
}

/** Parses a specifier that names a package; null for anything else. */
export function parseRequirement(text: string): Requirement | null {
  let at = 0;

  function take(pattern: RegExp): string | null {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) return null;
    at = pattern.lastIndex;
    return found[1] ?? "";
  }
  function takeSign(sign: string): boolean {
    if (text[at] !== sign) return false;
    at += 1;
    while (text[at] === " ") at += 1;
    return true;
  }
  const comma = (): boolean => takeSign(",");

  function takeExtras(): string[] | null {
    if (!takeSign("[")) return [];
    if (takeSign("]")) return [];
    const extras = takeList(() => take(tokens.identifier), comma);
    return takeSign("]") ? extras : null;
  }
  function takeSpecifiers(): string[] | null {
    const isEnclosed = takeSign("(");
    if (!isEnclosed && !/[<>=!~]/.test(text[at] ?? "")) return [];
    const specifiers = takeList(() => take(tokens.specifier), comma);
    return isEnclosed && !takeSign(")") ? null : specifiers;
  }
  function takeMarker(): string | null {
    const either = takeList(takeAll, () => take(tokens.or) !== null);
    return either && either.join(" or ");
  }
  function takeAll(): string | null {
    const all = takeList(takeCondition, () => take(tokens.and) !== null);
    return all && all.join(" and ");
  }
  function takeCondition(): string | null {
    if (takeSign("(")) {
      const inner = takeMarker();
      return inner !== null && takeSign(")") ? `(${inner})` : null;
    }
    const left = take(tokens.variable) ?? take(tokens.string);
    const comparison = left && take(tokens.comparison);
    const right = comparison && (take(tokens.variable) ?? take(tokens.string));
    return right ? `${left} ${comparison?.replace(/ +/, " ")} ${right}` : null;
  }

  const name = take(tokens.identifier);
  if (!name || archive.test(name)) return null;
  const extras = takeExtras();
  const specifiers = extras && takeSpecifiers();
  const marker = takeSign(";") ? takeMarker() : "";
  if (!extras || !specifiers || marker === null || at !== text.length) return null;
  return {
    name: normalName(name),
    extras: extras.map(normalName).sort(),
    specifiers: specifiers.map((specifier) => specifier.replaceAll(" ", "").toLowerCase()).sort(),
    marker,
  };
}

/** The name of a package as indexes compare names: PEP 503. */
export function normalName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_.]+/g, "-");
}

/** A package to install for one job; never a URL, a path or an option of pip. */
export const RequirementText = z
  .string()
  .min(1)
  // A longer text is not parsed: its parentheses may nest as deep as it is long.
  .max(256, { abort: true })
  .refine(
    (text) => parseRequirement(text) !== null,
    'must be a package\'s name, with extras, versions and a marker at most, such as "requests[socks]>=2.31"',
  );

/** Writes specifiers that differ only in spelling as the same text. */
export function canonicalRequirement(text: string): string {
  const { name, extras, specifiers, marker } = parseRequirement(text)!;
  return `${name}[${extras.join()}]${specifiers.join()};${marker}`;
}
