/** Control characters, and marks that change the direction of the text around a name. */
const forbidden = /[\p{Cc}\\\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** What `isArtifactName` asks for. */
export const artifactNameRule =
  "must be a relative path without '..', control characters and marks of text direction";

/**
 * Whether a name stays inside its job's artifacts and is safe in a header, a URL and a log;
 * agent/python/collector.py agrees. See docs/contract.md 6.22.
 */
export function isArtifactName(name: string): boolean {
  return (
    name.length > 0 &&
    name.isWellFormed() &&
    !forbidden.test(name) &&
    name.split("/").every((part) => part !== "" && part !== "." && part !== "..")
  );
}

/**
 * Whether a name matches a pattern. `*` stands for any text without a slash: "python:*" must not match
 * an image of the registry python:5000. Takes time linear in both lengths, even for a hostile pattern.
 */
export function matchesPattern(pattern: string, name: string): boolean {
  const [patterns, parts] = [pattern.split("/"), name.split("/")];
  return (
    patterns.length === parts.length && patterns.every((part, at) => matchesPart(part, parts[at]!))
  );
}

function matchesPart(pattern: string, text: string): boolean {
  const [start = "", ...pieces] = pattern.split("*");
  const end = pieces.pop();
  if (end === undefined) return text === start;
  if (!text.startsWith(start) || !text.slice(start.length).endsWith(end)) return false;
  let left = text.slice(start.length, text.length - end.length);
  for (const piece of pieces) {
    const at = left.indexOf(piece);
    if (at < 0) return false;
    left = left.slice(at + piece.length);
  }
  return true;
}

/** The candidate that a misspelt word most likely means; undefined if none is near. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  const mostEdits = Math.max(1, Math.floor(word.length / 3));
  let [found, fewest]: [string | undefined, number] = [undefined, mostEdits + 1];
  for (const candidate of candidates) {
    const count =
      Math.abs(candidate.length - word.length) < fewest ? edits(word, candidate) : fewest;
    if (count < fewest) [found, fewest] = [candidate, count];
  }
  return found;
}

/** Characters that are inserted, removed, replaced or swapped with their neighbour to make one word the other. */
function edits(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      next[j] = Math.min(
        row[j]! + 1,
        next[j - 1]! + 1,
        row[j - 1]! + (isSame ? 0 : 1),
        isSwapped ? before[j - 2]! + 1 : Infinity,
      );
    }
    [before, row] = [row, next];
  }
  return row[b.length]!;
}

/** What Python 3.9 to 3.14 know without an import. A function of the caller must not hide one of them. */
const names = `
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError
BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError
ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception ExceptionGroup
FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError ImportWarning
IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
ModuleNotFoundError NameError NotADirectoryError NotImplemented NotImplementedError OSError OverflowError
PendingDeprecationWarning PermissionError ProcessLookupError PythonFinalizationError RecursionError ReferenceError
ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError
SystemExit TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError
UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError abs aiter all anext any ascii
bin bool breakpoint bytearray bytes callable chr classmethod compile complex copyright credits delattr dict dir
divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash help hex id input int
isinstance issubclass iter len license list locals map max memoryview min next object oct open ord pow print
property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip`;
const keywords = `
False None True and as assert async await break class continue def del elif else except finally for from global if
import in is lambda nonlocal not or pass raise return try while with yield`;
/** What the code of a cell finds beside them: see agent/python/cells.py and tools.py. */
const ours = "display ToolError";

const taken = new Set(`${names} ${keywords} ${ours}`.trim().split(/\s+/));

/** Whether Python, or a cell, uses a name already. */
export const isPythonName = (name: string): boolean => taken.has(name);
