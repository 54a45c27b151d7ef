import { measureJson, tooManyValues } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";
import type { ResultFile } from "../report.ts";

/** Checks the bytes of /output/result.json; Python writes NaN and Infinity, which JSON lacks. */
export function readResultFile(bytes: Uint8Array): ResultFile {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return invalid("it is not UTF-8");
  }
  let hasInfinity = false;
  const { depth, values } = measureJson(text, (from, to) => {
    hasInfinity ||= Math.abs(Number(text.slice(from, to))) === Infinity;
  });
  if (depth > limits.jsonDepthMax) {
    return invalid(`it is nested ${depth} deep; the limit is ${limits.jsonDepthMax}`);
  }
  if (values > limits.resultJsonMaxValues) {
    const problem = tooManyValues(values, limits.resultJsonMaxValues);
    return invalid(`${problem}: write large data to another file of /output`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return invalid(`it is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return invalid(`it holds ${kindOf(value)}, not an object`);
  }
  if (hasInfinity) return invalid("it holds a number that is too large for a double");
  return { kind: "object", text };
}

function invalid(problem: string): ResultFile {
  return { kind: "invalid", problem };
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}
