import type { z } from "zod";
import type { FieldError } from "./errors.ts";

type ZodIssue = z.core.$ZodIssue;

/** Without this limit an answer could be many times larger than its request. */
const most = { faults: 100, pathLength: 256 };

/** The first faults that a schema found, each with the path of its field. */
export function fieldErrors(error: z.core.$ZodError): FieldError[] {
  const faults = error.issues.slice(0, most.faults).flatMap((issue) =>
    issue.code === "unrecognized_keys"
      ? issue.keys.slice(0, most.faults).map((key) => ({
          path: [...issue.path, key].join("."),
          message: "is not a field of this request",
        }))
      : [{ path: issue.path.join(".") || "(body)", message: describe(issue) }],
  );
  return faults.slice(0, most.faults).map(({ path, message }) => ({
    path: path.slice(0, most.pathLength),
    message,
  }));
}

/** Zod names the received type only in the text of its message. */
const wrongType = /^Invalid input: expected (\w+), received (\w+)$/;
/** Zod's names of types that have another name in JSON. */
const inJson: Partial<Record<string, string>> = { int: "integer", record: "object" };

function describe(issue: ZodIssue): string {
  // Zod puts the reason that a key is invalid into an issue inside this one.
  if (issue.code === "invalid_key" && issue.issues[0]) return describe(issue.issues[0]);
  const { message } = issue;
  const [, expected = "", received] = wrongType.exec(message) ?? [];
  if (received === undefined) return message;
  if (received === "undefined") return "is required";
  return `must be of type ${inJson[expected] ?? expected}, not ${received}`;
}
