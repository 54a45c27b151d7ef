import { ProtocolError, ProtocolErrorCode } from "@modelcontextprotocol/server";
import { decodeUtf8 } from "../../shared/bytes.ts";
import {
  type Artifact,
  ArtifactList,
  ExecutionRecord,
  JobStatus,
} from "../../shared/wire/execution.ts";
import { Problem } from "../../shared/wire/errors.ts";

/** Sends a request to the public HTTP interface: `fetch` with a path in place of the address. */
export type Api = (path: string, init?: RequestInit) => Promise<Response>;

/** @throws ProtocolError with the problem, when the request is refused. */
export async function post(api: Api, path: string, body?: object): Promise<unknown> {
  const headers = { "Content-Type": "application/json" };
  const init = { method: "POST", ...(body && { headers, body: JSON.stringify(body) }) };
  return (await answered(await api(path, init))).json();
}

/** The record of a job, or undefined if it does not end within `waitS` or the signal aborts. */
export async function waitForRecord(
  api: Api,
  id: string,
  waitS: number,
  signal?: AbortSignal,
): Promise<ExecutionRecord | undefined> {
  const path = `/jobs/${id}/result?wait=true&timeout=${waitS}&view=full`;
  const response = await api(path, signal && { signal });
  if (response.status === 408) return undefined;
  return ExecutionRecord.parse(await (await answered(response)).json());
}

export async function readStatus(api: Api, id: string): Promise<JobStatus> {
  return JobStatus.parse(await (await answered(await api(`/jobs/${id}`))).json());
}

/** What a job has written to a stream so far. */
export async function readOutput(
  api: Api,
  id: string,
  stream: "stdout" | "stderr",
): Promise<string> {
  const response = await answered(await api(`/jobs/${id}/logs?stream=${stream}`));
  return decodeUtf8(new Uint8Array(await response.arrayBuffer()));
}

/** Asks for the end of a job; one that has ended stays as it is. */
export async function cancel(api: Api, id: string): Promise<void> {
  const response = await askToCancel(api, id);
  if (response.status !== 409) await answered(response);
}

export async function askToCancel(api: Api, id: string): Promise<Response> {
  return api(`/jobs/${id}/cancel`, { method: "POST" });
}

/** Artifacts of a job; none before its end. */
export async function readArtifacts(api: Api, id: string): Promise<Artifact[]> {
  const response = await answered(await api(`/jobs/${id}/artifacts`));
  return ArtifactList.parse(await response.json()).artifacts;
}

/** Bytes of an artifact, whole or from `offset` on and at most `length`. */
export async function readArtifact(
  api: Api,
  id: string,
  name: string,
  part?: { offset: number; length: number },
): Promise<Uint8Array> {
  const path = `/jobs/${id}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
  const range = part && `bytes=${part.offset}-${part.offset + part.length - 1}`;
  const response = await api(path, range === undefined ? {} : { headers: { Range: range } });
  return new Uint8Array(await (await answered(response)).arrayBuffer());
}

/** @throws ProtocolError with the problem, when the request was refused. */
export async function answered(response: Response): Promise<Response> {
  if (response.ok) return response;
  const problem = Problem.safeParse(await response.json().catch(() => undefined));
  if (!problem.success) {
    const { status } = response;
    throw new ProtocolError(ProtocolErrorCode.InternalError, `The service answered ${status}.`);
  }
  const { detail, errors = [] } = problem.data;
  const faults = errors
    .map(({ path, message }) => `${path}: ${message}`)
    .filter((fault) => !detail.includes(fault));
  throw new ProtocolError(
    isFaultOfRequest(response.status)
      ? ProtocolErrorCode.InvalidParams
      : ProtocolErrorCode.InternalError,
    [detail, ...faults].join("\n"),
    problem.data,
  );
}

function isFaultOfRequest(status: number): boolean {
  return [400, 404, 409, 413, 416, 422].includes(status);
}
