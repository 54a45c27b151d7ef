import type { FilePage, UploadedFile } from "../../../shared/wire/file.ts";

export const fileId = "019aa5ef-9b3c-7d10-a2f4-1c5e7b9d3f20";

export const uploadedFile: UploadedFile = {
  file_id: fileId,
  name: "prices.parquet",
  size_bytes: 20_481,
  sha256: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
  content_type: "application/vnd.apache.parquet",
  created_at: "2026-11-21T09:29:07.000Z",
  expires_at: "2026-11-22T09:29:07.000Z",
};

export const filePage: FilePage = {
  items: [uploadedFile],
  limit: 100,
  offset: 0,
  has_more: false,
  count: 1,
};
