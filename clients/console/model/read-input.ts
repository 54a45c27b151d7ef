/** The input of a job as the editor has it; says what is wrong with it. */
export function readInput(text: string): { input: Record<string, unknown> } | { problem: string } {
  if (text.trim() === "") return { input: {} };
  try {
    const input: unknown = JSON.parse(text);
    if (typeof input === "object" && input !== null && !Array.isArray(input)) {
      return { input: input as Record<string, unknown> };
    }
    return { problem: 'The input must be a JSON object, such as {"name": "Ada"}.' };
  } catch (error) {
    return { problem: `The input is not JSON: ${(error as Error).message}` };
  }
}

/** JSON in lines, for people; anything else as it is. */
export function laidOut(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
