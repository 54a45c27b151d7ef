import { artifacts, type Artifacts } from "./jobs/artifacts.ts";
import { asking } from "./transport/ask.ts";
import { batches, type Batches } from "./jobs/batches.ts";
import { deadLetters, type DeadLetters } from "./jobs/dead-letters.ts";
import { files, type Files } from "./jobs/files.ts";
import type { Usage } from "./generated.ts";
import { jobs, type Jobs } from "./jobs/jobs.ts";
import { sessions, type Sessions } from "./sessions/sessions.ts";
import { stream, type Stream } from "./jobs/stream.ts";
import { audit, type Audit, keys, type Keys, tenants, type Tenants } from "./tenants.ts";
import type { CallOptions, Transport } from "./transport/transport.ts";

export interface Verbs extends Jobs {
  /** Address of the service, without a slash at its end. */
  readonly url: string;
  readonly stream: Stream;
  readonly files: Files;
  readonly artifacts: Artifacts;
  readonly sessions: Sessions;
  readonly batches: Batches;
  readonly deadLetters: DeadLetters;
  readonly keys: Keys;
  readonly tenants: Tenants;
  /** What the tenant of the key uses, and what it may use. */
  readonly usage: (options?: CallOptions) => Promise<Usage>;
  readonly audit: Audit;
  /** Sends any request. Resolves when the headers of the answer are there; the caller reads the body. */
  readonly request: (path: string, init?: RequestInit, options?: CallOptions) => Promise<Response>;
}

/** The client without the generated operations: it is small, and needs no set-up. */
export function verbs(service: Transport): Verbs {
  const ask = asking(service);
  const events = stream(service);
  const { runToEnd, ...ofJobs } = jobs(ask, events, service);
  return {
    url: service.url,
    ...ofJobs,
    stream: events,
    files: files(ask, service),
    artifacts: artifacts(ask, service),
    sessions: sessions(ask, service, runToEnd),
    batches: batches(ask),
    deadLetters: deadLetters(ask),
    keys: keys(ask),
    tenants: tenants(ask),
    usage: (options) => ask("/usage", {}, options),
    audit: audit(ask),
    request: service.open,
  };
}
