import { isArtifactName as isPlainName } from "../../../shared/artifact-name.ts";
import { limits } from "../../../shared/wire/limits.ts";

/** Names that the API uses for the execution's code and input. */
const reserved = new Set(["_code.py", "_input.json"]);

/** Whether a file of /output may have a name. */
export function isArtifactName(name: string): boolean {
  return (
    !reserved.has(name) &&
    isPlainName(name) &&
    Buffer.byteLength(name) <= limits.artifactNameMaxBytes
  );
}
