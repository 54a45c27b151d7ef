import type {
  CallRequest,
  Session,
  SessionFile,
  SessionRequest,
} from "../../../shared/wire/client/session.ts";
import { at, sessionId } from "./jobs.ts";

export const contextId = "019aa5f0-7d2e-7b40-8c11-5a9e0f1b2c3d";

export const sessionRequest: Partial<SessionRequest> = { idle_timeout: 600, lifetime: 3600 };

export const session: Session = {
  session_id: sessionId,
  status: "ready",
  busy: false,
  reason: null,
  error: null,
  job_type: "default",
  job_version: "latest",
  requirements: [],
  contexts: ["default"],
  calls: 2,
  created_at: at("00.000"),
  started_at: at("00.006"),
  ready_at: at("00.021"),
  used_at: at("04.102"),
  ended_at: null,
  expires_at: "2026-11-21T10:30:00.000Z",
  idle_timeout: 600,
  python_version: "3.13.2",
  container_backend: "zygote",
  container_runtime: "runc",
};

const { used_at: _used, ...unused } = session;
export const queuedSession: Session = {
  ...unused,
  status: "queued",
  message: "No connected agent takes sessions.",
  calls: 0,
  started_at: null,
  ready_at: null,
  used_at: null,
  python_version: null,
  container_backend: null,
  container_runtime: null,
};

type Examples<T> = Record<string, { summary: string; value: T }>;
export const callExamples: Examples<Partial<CallRequest>> = {
  cell: { summary: "Code", value: { code: "total = sum([1, 2, 39])\ntotal" } },
  file: {
    summary: "A file to work on",
    value: {
      code: 'open("prices.csv").read()',
      files: [{ name: "prices.csv", to: "work", text: "item,price\ntea,3\n" }],
    },
  },
  command: { summary: "A program", value: { command: ["ls", "-l"] } },
};

export const sessionFile: SessionFile = {
  path: "tables/prices.csv",
  type: "file",
  size_bytes: 17,
  modified_at: at("04.100"),
};
