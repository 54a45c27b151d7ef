import { isJsonObject, parseJson } from "../../../shared/json.ts";
import { limits } from "../../../shared/wire/limits.ts";

/** The input of a job as the editor has it; says what is wrong with it. */
export function readInput(text: string): { input: Record<string, unknown> } | { problem: string } {
  if (text.trim() === "") return { input: {} };
  try {
    const input = parseJson(text, { depth: limits.jsonDepthMax });
    if (isJsonObject(input)) return { input };
    return { problem: 'The input must be a JSON object, such as {"name": "Ada"}.' };
  } catch (error) {
    return { problem: `The input is not JSON: ${(error as Error).message}` };
  }
}

/** JSON in lines, for people; anything else as it is. */
export function laidOut(text: string): string {
  try {
    return JSON.stringify(parseJson(text, { depth: limits.jsonDepthMax }), null, 2);
  } catch {
    return text;
  }
}
