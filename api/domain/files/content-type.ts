import { Mime } from "mime/lite";
import other from "mime/types/other.js";
import standard from "mime/types/standard.js";

/** Types of files that programs often write and that the library does not know, or maps to a worse type. */
const known = new Mime(standard, other).define(
  {
    "application/vnd.apache.arrow.file": ["arrow", "feather"],
    "application/vnd.apache.parquet": ["parquet"],
    "application/x-ndjson": ["jsonl", "ndjson"],
    "application/zip": ["npz", "whl"],
    "audio/opus": ["opus"],
    "text/x-python": ["py"],
  },
  true,
);

const isText = /^text\/|^image\/svg\+xml$|^application\/(xhtml\+)?xml$/;

/** Picks the Content-Type of a file by its name. */
export function contentTypeOf(name: string): string {
  // The library needs a path: it would treat a name without a dot as an extension.
  const type = known.getType(`/${name}`) ?? "application/octet-stream";
  return isText.test(type) ? `${type}; charset=utf-8` : type;
}
