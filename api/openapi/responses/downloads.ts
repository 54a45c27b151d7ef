import { z } from "@hono/zod-openapi";
import { problemRef } from "./problems.ts";
import { headers, type ResponseHeader } from "./headers.ts";

/** Descriptions that all downloads of a file share. */

const ifNoneMatch = z
  .string()
  .optional()
  .openapi({ description: "ETags that the client has, or `*`." });

export const headHeaders = z.object({ "If-None-Match": ifNoneMatch });

export const downloadHeaders = z.object({
  "If-None-Match": ifNoneMatch,
  Range: z.string().optional().openapi({ description: "Such as `bytes=0-1023`." }),
  "If-Range": z
    .string()
    .optional()
    .openapi({ description: "An ETag; `Range` applies only if it is current." }),
});

const ofFile: ResponseHeader[] = ["ETag", "Content-Length", "Content-Disposition", "Accept-Ranges"];
export const bytes = z.string().openapi({ format: "binary" });
const unchanged = {
  description: "If-None-Match has the current ETag: the file is unchanged.",
  headers: headers("ETag"),
};

export const downloads = {
  200: {
    description: "The file, under its own Content-Type.",
    headers: headers(...ofFile),
    content: { "*/*": { schema: bytes } },
  },
  206: {
    description: "The part of the file that `Range` asked for.",
    headers: headers(...ofFile, "Content-Range"),
    content: { "*/*": { schema: bytes } },
  },
  304: unchanged,
  416: problemRef("range_not_satisfiable"),
};

export const heads = {
  200: { description: "The headers of the download.", headers: headers(...ofFile) },
  304: unchanged,
};
