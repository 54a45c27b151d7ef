import type { Client } from "@libsql/client";
import { waitUntil } from "../../shared/testing/wait-until.ts";
import type { ExecutionRecord } from "../../shared/wire/execution.ts";
import { jsonRequest } from "../command/json-request.ts";

export type Json = Record<string, unknown>;
export type Reply<T = Json> = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Empty if the answer is no JSON. */
  readonly json: T;
};

/** What a client asks of a service. */
export type ServiceCalls = {
  readonly send: <T = Json>(method: string, path: string, body?: unknown) => Promise<Reply<T>>;
  /** Runs code to its end. */
  readonly execute: (code: string, more?: Json) => Promise<Json>;
  /** Submits code; resolves with its id once that is acknowledged. */
  readonly submit: (code: string, input?: Json, more?: Json) => Promise<string>;
  readonly record: (id: string) => Promise<ExecutionRecord>;
  /** Resolves once the code of this attempt runs. */
  readonly untilBegun: (id: string, attempt?: number) => Promise<void>;
  readonly untilStatus: (id: string, status: string) => Promise<void>;
  /** The record, once the job has ended. */
  readonly ended: (id: string) => Promise<ExecutionRecord>;
};

/** @param url Where the API is now. */
export function serviceCalls(url: () => string, db: Client, key?: string): ServiceCalls {
  const keyHeader: Record<string, string> = key === undefined ? {} : { "X-API-Key": key };

  async function send<T = Json>(method: string, path: string, body?: unknown): Promise<Reply<T>> {
    const response = await fetch(url() + path, jsonRequest(method, body, keyHeader));
    const { status, headers } = response;
    const text = await response.text();
    const isJson = /json/.test(headers.get("Content-Type") ?? "");
    return { status, headers, text, json: (isJson ? JSON.parse(text) : {}) as T };
  }

  const record = async (id: string) =>
    (await send<ExecutionRecord>("GET", `/executions/${id}?view=full`)).json;

  async function lastBegun(id: string): Promise<number> {
    const { rows } = await db.execute({
      sql: "SELECT iif(code_started_at IS NULL, 0, attempt) AS n FROM executions WHERE id = ?",
      args: [id],
    });
    return Number(rows[0]?.["n"]);
  }

  return {
    send,
    execute: async (code, more = {}) => (await send("POST", "/execute", { code, ...more })).json,
    submit: async (code, input = {}, more = {}) => {
      // A busy machine's engine takes its time.
      const body = { code, input_data: input, startup_timeout: 600, ...more };
      const { status, text, json } = await send("POST", "/execute/async", body);
      if (status !== 202) throw new Error(text);
      return json["job_id"] as string;
    },
    record,
    untilBegun: (id, attempt = 1) =>
      waitUntil(`attempt ${attempt} of ${id} begins`, async () => (await lastBegun(id)) >= attempt),
    untilStatus: (id, status) =>
      waitUntil(`${id} is ${status}`, async () => (await record(id)).status === status),
    ended: async (id) => {
      await waitUntil(`${id} ends`, async () => (await record(id)).ended_at !== null);
      return record(id);
    },
  };
}
