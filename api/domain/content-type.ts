import { Mime } from "mime/lite";
import other from "mime/types/other.js";
import standard from "mime/types/standard.js";

/** Types of files that programs write, which the library does not know or knows less well. */
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

/** The Content-Type that a file is served with, by its name. */
export function contentTypeOf(name: string): string {
  // As a path: a name without a dot would be taken for an extension.
  const type = known.getType(`/${name}`) ?? "application/octet-stream";
  return isText.test(type) ? `${type}; charset=utf-8` : type;
}
