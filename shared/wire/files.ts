import { z } from "zod";
import { artifactNameRule, isArtifactName } from "../names.ts";
import { ShownTenant } from "./access.ts";
import { JobId } from "./executions.ts";
import { atMost, pageOf, Timestamp } from "./fields.ts";
import { limits } from "./limits.ts";

/** Where the bytes of a file of a request are: in the request, or somewhere in the service. */
const contents = {
  text: z.string().optional().meta({ description: "Its content, stored as UTF-8." }),
  base64: z.base64().optional().meta({ description: "Its content in base64." }),
  file_id: z.uuid().optional().meta({ description: "A file sent to `POST /files`." }),
  artifact: z
    .strictObject({ job_id: JobId, name: z.string().min(1) })
    .meta({ id: "ArtifactOfJob", description: "An artifact of a finished job." })
    .optional(),
};
type Contents = { [name in keyof typeof contents]?: unknown };

const hasOneContent = ({ text, base64, file_id, artifact }: Contents): boolean =>
  [text, base64, file_id, artifact].filter((value) => value !== undefined).length === 1;
const oneContent = "must have exactly one of text, base64, file_id and artifact";

/** A file of a request. */
export const InputFile = z
  .strictObject({
    name: z.string().min(1).meta({
      description:
        "Its path under /input: a relative path, as of an artifact. `data.json` and names that begin with `_` are taken.",
      example: "tables/prices.csv",
    }),
    ...contents,
  })
  .refine(hasOneContent, oneContent)
  .meta({
    id: "InputFile",
    minProperties: 2,
    maxProperties: 2,
    description: "A file that the code finds at /input/<name>, read-only.",
    example: { name: "prices.csv", text: "item,price\ntea,3\n" },
  });
export type InputFile = z.infer<typeof InputFile>;

export const InputFiles = atMost(
  limits.inputFilesMax,
  z.array(InputFile).superRefine(checkNames),
).meta({
  maxItems: limits.inputFilesMax,
  description:
    "Files that the code finds at /input/<name>, read-only. Above a quarter of the job's memory limit together, the job needs an agent that mounts files.",
  example: [{ name: "prices.csv", text: "item,price\ntea,3\n" }],
});

/** A file of a call of a session. */
const CallInputFile = z
  .strictObject({
    name: z.string().min(1).meta({
      description:
        "Its path under the folder that `to` names: a relative path, as of an artifact. In /input, `data.json` and names that begin with `_` are taken; in /output, `_code.py` and `_input.json`.",
      example: "tables/prices.csv",
    }),
    to: z.enum(["input", "work"]).default("input").meta({
      description:
        "input: at /input/<name>, read-only. work: at /output/<name>, where the code may change it. Later calls find it at either place.",
      example: "work",
    }),
    ...contents,
  })
  .refine(hasOneContent, oneContent)
  .meta({
    id: "CallInputFile",
    minProperties: 2,
    maxProperties: 3,
    description: "A file that a call brings into its session.",
    example: { name: "prices.csv", to: "work", text: "item,price\ntea,3\n" },
  });

export const CallInputFiles = atMost(
  limits.inputFilesMax,
  z.array(CallInputFile).superRefine(checkNames),
).meta({
  maxItems: limits.inputFilesMax,
  description:
    "Files that the call brings into the session. Together they have at most a quarter of the job type's memory limit.",
});

/** The last part of a name is a file, the others are folders. No path is both, and none is used twice. */
function checkNames(
  files: { name: string; to?: "input" | "work" }[],
  context: z.RefinementCtx,
): void {
  const names = new Map<string, number>();
  for (const [n, { name, to = "input" }] of files.entries()) {
    const message = whyNotFileName(name, to) ?? whyTaken(name, names);
    if (message !== undefined) context.addIssue({ code: "custom", path: [n, "name"], message });
    else names.set(name, n);
  }
}

/** What the artifacts of every record have, beside the files of its request. */
const ofRecords = ["_code.py", "_input.json"];

/** Why a file cannot have this name; undefined if it can. */
export function whyNotFileName(name: string, to: "input" | "work"): string | undefined {
  const bytes = new TextEncoder().encode(name).length;
  if (bytes > limits.artifactNameMaxBytes) {
    return `must be at most ${limits.artifactNameMaxBytes} bytes`;
  }
  if (!isArtifactName(name)) return artifactNameRule;
  const [first = ""] = name.split("/");
  if (to === "input" && name.startsWith("_")) return "must not begin with _";
  if (to === "input" && first === "data.json") return "must not be data.json";
  if (ofRecords.includes(first)) return `must not be ${first}`;
  const isLong = name.split("/").some((part) => new TextEncoder().encode(part).length > 255);
  return isLong ? "must have at most 255 bytes between slashes" : undefined;
}

function whyTaken(name: string, names: Map<string, number>): string | undefined {
  for (const [other, n] of names) {
    if (other === name) return `must not be the name of files.${n}, too`;
    if (name.startsWith(`${other}/`)) return `must not be in a folder that is files.${n}`;
    if (other.startsWith(`${name}/`)) return `must not be a folder of files.${n}`;
  }
  return undefined;
}

/** A file that a client has uploaded. */
export const UploadedFile = z
  .object({
    file_id: JobId.meta({ description: "For `files` of a request that makes a job." }),
    name: z.string().meta({ example: "prices.parquet" }),
    size_bytes: z.int(),
    sha256: z.string(),
    content_type: z.string().meta({ example: "application/vnd.apache.parquet" }),
    created_at: Timestamp,
    expires_at: Timestamp.meta({
      description: "It is kept until then, and longer while a record refers to it.",
    }),
    tenant: ShownTenant,
  })
  .meta({ id: "UploadedFile" });
export type UploadedFile = z.infer<typeof UploadedFile>;

export const FilePage = pageOf(UploadedFile).meta({ id: "FilePage" });
export type FilePage = z.infer<typeof FilePage>;

export const FileDeleted = z
  .object({ file_id: z.string(), deleted: z.literal(true) })
  .meta({ id: "FileDeleted" });

/**
 * A file of a leased job. The agent gets its bytes from `/leases/{lease_id}/files/{sha256}`: whole, with
 * Content-Length, or a part of them with Range.
 */
export const LeasedFile = z.object({
  /** Path under /input. */
  name: z.string(),
  size_bytes: z.int().min(0),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});
export type LeasedFile = z.infer<typeof LeasedFile>;

/**
 * How an agent gives a job its stdin, args and files. One that says nothing knows none of them, and gets
 * no job that has any. `mount`: files are mounted, so that they use none of the job's memory.
 */
export const inputWays = ["frames", "mount"] as const;
export const InputWay = z.enum(inputWays);
export type InputWay = z.infer<typeof InputWay>;
