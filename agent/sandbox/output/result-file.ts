import { checkJson, JsonError, withoutMark } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import type { ResultFile } from "../report.ts";

/** Checks the bytes of /output/result.json; Python writes NaN and Infinity, which JSON lacks. */
export async function readResultFile(bytes: Uint8Array): Promise<ResultFile> {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return invalid("it is not UTF-8");
  }
  const { jsonDepthMax: depth, resultJsonMaxValues: values } = limits;
  try {
    const json = withoutMark(text);
    const first = await checkJson(json, { depth, values, isFinite: true });
    return first === "{"
      ? { kind: "object", text }
      : invalid(`it holds ${kinds[first] ?? "a number"}, not an object`);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    if (error.isMalformed) return invalid(`it is not JSON: ${error.message}`);
    return invalid(`${error.message}: write other data to another file of /output`);
  }
}

function invalid(problem: string): ResultFile {
  return { kind: "invalid", problem };
}

/** By the first character of a text. */
const kinds: Readonly<Record<string, string>> = {
  "[": "an array",
  '"': "a string",
  n: "null",
  t: "a boolean",
  f: "a boolean",
};
