import type { ResourceLink } from "@modelcontextprotocol/server";
import type { Artifact } from "../../../shared/wire/execution.ts";

export const artifactTemplate = "airlock://jobs/{id}/artifacts/{+name}";

export function artifactUri(jobId: string, name: string): string {
  return `airlock://jobs/${jobId}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export function parseArtifactUri(uri: string): { jobId: string; name: string } | undefined {
  const [, jobId, path] = /^airlock:\/\/jobs\/([0-9a-f-]{36})\/artifacts\/(.+)$/i.exec(uri) ?? [];
  if (jobId === undefined || path === undefined) return undefined;
  try {
    return { jobId, name: decodeURIComponent(path) };
  } catch {
    return undefined;
  }
}

export function artifactLink(jobId: string, artifact: Artifact): ResourceLink {
  const { name, size_bytes: size, content_type: mimeType } = artifact;
  return { type: "resource_link", uri: artifactUri(jobId, name), name, mimeType, size };
}
