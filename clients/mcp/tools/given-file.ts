import { z } from "zod";
import { JobId } from "../../../shared/wire/execution.ts";
import { InputFile } from "../../../shared/wire/file.ts";

const { name, text, base64, file_id } = InputFile.shape;

/** A file that a call of a tool gives to code. The service checks that it has exactly one source. */
export const givenFile = (about: string) =>
  z.strictObject({
    name: name.describe(about),
    text: text.describe("The content, as text."),
    base64: base64.describe("The content in base64, for files that are not text."),
    file_id: file_id.describe("Id of a file that was uploaded with POST /files."),
    artifact: z
      .strictObject({
        job_id: JobId,
        name: z.string().min(1).describe("Name of the file, as in list_artifacts."),
      })
      .optional()
      .describe("A file that an earlier job wrote to /output."),
  });
