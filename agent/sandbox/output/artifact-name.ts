import { limits } from "../../../shared/wire/limits.ts";

/** Names that the API uses for the execution's code and input. */
const reserved = new Set(["_code.py", "_input.json"]);

const forbidden = /[\p{Cc}\p{Surrogate}\\\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;

/** Whether a name is a relative path that is safe in a header, a URL and a log; inside/collect.py agrees. */
export function isArtifactName(name: string): boolean {
  return (
    !reserved.has(name) &&
    !forbidden.test(name) &&
    Buffer.byteLength(name) <= limits.artifactNameMaxBytes &&
    name.split("/").every((part) => part !== "" && part !== "." && part !== "..")
  );
}
