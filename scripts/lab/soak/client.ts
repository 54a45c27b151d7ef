import { randomBytes, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { OpenApiCheck } from "../../../api/testing/openapi-check.ts";
import type { Receiver } from "../../../api/testing/receiver.ts";
import type { Acknowledged } from "../../testing/ledger.ts";
import { random, type Random } from "./plan.ts";

export type Json = Record<string, unknown>;

export type Tenant = {
  readonly name: string;
  readonly key: string;
  /** Is in everything that the tenant's clients send, and may be in no answer to another tenant. */
  readonly token: string;
  /** Its own receiver of webhooks. */
  readonly receiver: Receiver;
};

/** What all clients know of the service, and what they have seen. */
export type Watch = {
  readonly urls: readonly string[];
  readonly tenants: readonly Tenant[];
  readonly document: OpenApiCheck;
  /** Nothing breaks: each request is answered, and each job ends as its code says. */
  readonly isCalm: boolean;
  /** Sessions that may start now, so that none waits for a place. */
  places: number;
  /** Ids of jobs, sessions, batches and files, with the tenant that was told of them first. */
  readonly owners: Map<string, Tenant>;
  readonly acknowledged: Map<string, Acknowledged>;
  /** Jobs whose dead letter a client has removed. */
  readonly lettersRemoved: Set<string>;
  /** Operations by how often they went well. */
  readonly performed: Map<string, number>;
  /** Endpoints by how often they were answered well. */
  readonly answered: Map<string, number>;
  /** Requests that no answer came to, or whose work a fault has ended. */
  readonly lost: Map<string, number>;
  readonly violations: string[];
  /** Those violations that show something of another tenant. */
  readonly leaks: string[];
  requests: number;
  checks: number;
  /** Once set, clients begin nothing more. */
  readonly end: AbortSignal;
};

export type Answer = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Json;
  /** What was asked and answered, for a violation. */
  readonly told: string;
};

/** Where a client asks: the endpoint, as `GET /jobs/{}`, and the path with the values in their places. */
export type Place = {
  readonly endpoint: string;
  readonly method: string;
  readonly path: string;
  readonly values: readonly string[];
};

/** A place below `root`, by its method and path: the values of a template are encoded. */
export const below =
  (root: string) =>
  (parts: TemplateStringsArray | string[], ...values: readonly (string | number)[]): Place => {
    const [method = "", path = ""] = parts.join("{}").split(" ");
    const left = values.values();
    return {
      endpoint: `${method} ${root}${path.split("?")[0]}`,
      method,
      path: root + path.replaceAll("{}", () => encodeURIComponent(left.next().value!)),
      values: values.map(String),
    };
  };

/** A place of the interface, as in at`GET /jobs/${id}?view=all`. */
export const at = below("");

export type Ask = {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** The statuses that the model allows. */
  readonly expect?: readonly number[];
  /** What the answer is as a text. */
  readonly text?: string;
  /** Sent without the tenant's key. */
  readonly isKeyless?: boolean;
  /** An operator's, about all tenants. */
  readonly seesAll?: boolean;
  readonly signal?: AbortSignal;
  /** How long an answer may take. */
  readonly patienceMs?: number;
};

/** What a client does is not as its model says. */
export class Violation extends Error {}
/** An answer has something of another tenant: no fault explains that. */
class Leak extends Violation {}
/** A fault of the soak has taken the answer, the job or the session. */
export class LostToFault extends Error {}

/** Texts or values that an answer must have: of objects the keys that are named, of others all. A function decides itself. */
export type Expected =
  | string
  | number
  | boolean
  | null
  | undefined
  | ((value: never) => boolean)
  | readonly Expected[]
  | { readonly [key: string]: Expected };

const usualPatienceMs = 120_000;
const well = [200, 201, 202, 204];

export class Client {
  readonly watch: Watch;
  readonly tenant: Tenant;
  readonly random: Random;
  /** Jobs of this client that have ended: their records must not change any more. */
  readonly ended: { id: string; record: Json }[] = [];
  #marks = 0;
  readonly #name: string;

  constructor(watch: Watch, tenant: Tenant, number: number, seed: number) {
    this.watch = watch;
    this.tenant = tenant;
    this.random = random(seed);
    this.#name = `${tenant.token}-${number}`;
  }

  /** A text that no other request has. */
  mark(): string {
    this.#marks += 1;
    return `${this.#name}-${this.#marks}`;
  }

  /** Runs an operation, and notes what it finds wrong. Returns whether it was not lost. */
  async perform({ name, run }: Operation): Promise<boolean> {
    try {
      await run(this);
      count(this.watch.performed, name);
      return true;
    } catch (error) {
      if (error instanceof LostToFault) {
        count(this.watch.lost, error.message);
        return false;
      }
      const what = error instanceof Violation ? error.message : String((error as Error).stack);
      const violation = `${name} of ${this.tenant.name}: ${what}`;
      this.watch.violations.push(violation);
      if (error instanceof Leak) this.watch.leaks.push(violation);
      return true;
    }
  }

  /**
   * Sends a request, and checks what holds for every answer: it is described, and has nothing of another tenant.
   */
  async ask(place: Place, asked: Ask = {}): Promise<Answer> {
    const { expect = well } = asked;
    const { endpoint } = place;
    const told = `${place.method} ${place.path} ${show(asked.body)}`;
    this.watch.requests += 1;
    const begunMs = performance.now();
    const tookMs = () => Math.round(performance.now() - begunMs);
    let response: Response;
    let text: string;
    try {
      response = await this.#send(place, asked);
      text = await response.text();
    } catch (error) {
      if (asked.signal?.aborted) throw error;
      this.loseIf(true, `${endpoint} unanswered`);
      const { cause } = error as Error;
      throw new Violation(
        `${told}: no answer after ${tookMs()} ms: ${String(error)} ${String(cause)}`,
      );
    }
    const { status, headers } = response;
    const type = headers.get("Content-Type")?.split(";")[0] ?? "";
    const isJson = /^application\/(problem\+)?json$/.test(type) && text !== "";
    const json = (isJson ? JSON.parse(text) : {}) as Json;
    const answer = { status, headers, text, json, told: `${told} → ${status} ${show(text)}` };
    if (!asked.seesAll) this.#scan(answer, place.values);
    this.#compare(place.method, response.url, answer);
    if (!expect.includes(status)) {
      const lost = `${endpoint} ${status}`;
      this.loseIf(isOfFault(endpoint, answer), lost);
      if (hasNoRoom(endpoint, answer, tookMs())) throw new LostToFault(lost);
      throw new Violation(`${answer.told} after ${tookMs()} ms; expected ${expect.join(" or ")}`);
    }
    this.watch.checks += 1;
    if (status < 400) count(this.watch.answered, endpoint);
    if (asked.text !== undefined) this.check(answer, asked.text, text);
    return answer;
  }

  #send({ method, path }: Place, asked: Ask): Promise<Response> {
    const { body, signal, patienceMs = usualPatienceMs } = asked;
    const isJson = body !== undefined && Object.getPrototypeOf(body) === Object.prototype;
    return fetch(this.random.pick(this.watch.urls) + path, {
      method,
      headers: {
        ...(!asked.isKeyless && { "X-API-Key": this.tenant.key }),
        // An edge runtime compresses text, and a compressed answer has no Content-Length.
        "Accept-Encoding": "identity",
        ...(isJson && { "Content-Type": "application/json" }),
        ...asked.headers,
      },
      ...(body !== undefined && {
        body: (isJson ? JSON.stringify(body) : body) as NonNullable<RequestInit["body"]>,
        duplex: "half",
      }),
      signal: AbortSignal.any([...(signal ? [signal] : []), AbortSignal.timeout(patienceMs)]),
    });
  }

  /** @throws LostToFault where something is lost and a fault may have done it. */
  loseIf(isLost: boolean, what: string): void {
    if (isLost && !this.watch.isCalm) throw new LostToFault(what);
  }

  /** Sends a request and hangs up before, or while, it is answered. */
  async hangUp(place: Place, asked: Ask, afterMs: number): Promise<void> {
    const end = new AbortController();
    const waited = sleep(afterMs).then(() => end.abort());
    await this.ask(place, { ...asked, signal: end.signal }).catch((error: unknown) => {
      if (error instanceof Violation) throw error;
    });
    await waited;
  }

  check(answer: Answer, expected: Expected, actual: unknown = answer.json): void {
    this.watch.checks += 1;
    const difference = differenceOf(actual, expected, "");
    if (difference !== undefined) throw new Violation(`${answer.told}; ${difference}`);
  }

  /** Asks until it is answered as expected, for what becomes true soon. */
  async until(place: Place, expected: Expected): Promise<Answer> {
    const deadline = performance.now() + usualPatienceMs / 2;
    for (;;) {
      const answer = await this.ask(place);
      if (differenceOf(answer.json, expected, "") === undefined) return answer;
      if (performance.now() > deadline) {
        this.loseIf(true, `${place.endpoint} waited too long`);
        this.check(answer, expected);
        return answer;
      }
      await sleep(100);
    }
  }

  /** Asks until no fault takes the answer. */
  async insist(place: Place, asked: Ask = {}): Promise<Answer> {
    for (;;) {
      try {
        return await this.ask(place, asked);
      } catch (error) {
        if (!(error instanceof LostToFault)) throw error;
        await sleep(300);
      }
    }
  }

  /** Whether this tenant's client has marked it, or nobody. */
  owns({ metadata }: Json, { token } = this.tenant): boolean {
    const mark = (metadata as Json | undefined)?.["mark"] as string | undefined;
    return mark === undefined || mark.startsWith(token);
  }

  /** What a session does; a fault that has ended the session explains what is wrong. */
  async unlessLost<T>(id: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (this.watch.isCalm || !(error instanceof Violation) || error instanceof Leak) throw error;
      const { json } = await this.ask(at`GET /sessions/${id}`);
      if (json["reason"] === null || json["reason"] === "deleted") throw error;
      throw new LostToFault(`a session ended: ${json["reason"] as string}`);
    }
  }

  /** Code that does not end within 2 s of when it was to, as on a busy machine, is killed with its interpreter. */
  noteKill(sinceMs: number): void {
    const afterMs = Math.round(performance.now() - sinceMs);
    if (afterMs < 2000) throw new Violation(`an interpreter was killed after ${afterMs} ms`);
    count(this.watch.lost, "an interpreter was killed with its call");
  }

  acknowledge(id: string, ends: readonly string[], stdout?: string): void {
    this.watch.acknowledged.set(id, { id, ends, ...(stdout !== undefined && { stdout }) });
  }

  /** Nothing of another tenant: neither its token nor an id that it was told of. */
  #scan({ text, headers, status, told }: Answer, asked: readonly string[]): void {
    const { watch, tenant } = this;
    const all = `${text}\n${[...headers].join("\n")}`;
    for (const other of watch.tenants) {
      if (other === tenant) continue;
      const found = formsOf(other.token).find((form) => all.includes(form));
      if (found !== undefined) {
        throw new Leak(`${told}; has the token ${found} of ${other.name}: ${around(all, found)}`);
      }
    }
    if (status >= 400) return;
    for (const [, id = ""] of text.matchAll(ids)) {
      const owner = watch.owners.get(id);
      if (owner === undefined) watch.owners.set(id, tenant);
      else if (owner !== tenant) {
        throw new Leak(`${told}; has the id ${id} of ${owner.name}: ${around(text, id)}`);
      }
    }
    for (const id of asked) {
      const owner = watch.owners.get(id);
      if (owner && owner !== tenant) throw new Leak(`${told}; ${id} is of ${owner.name}`);
    }
  }

  #compare(method: string, url: string, { status, headers, text, told }: Answer): void {
    const { document } = this.watch;
    const { pathname } = new URL(url);
    if (!document.describes(method, pathname)) return;
    this.watch.checks += 1;
    const faults = document.faultsOfAnswer(method, pathname, { status, headers, body: text });
    if (faults.length > 0) throw new Violation(`${told}; not as described: ${faults.join(", ")}`);
  }
}

/** Something that a client does, with what it must see of it. */
export type Operation = {
  readonly name: string;
  /** How often it is done beside the others. */
  readonly weight: number;
  readonly isPossible?: (client: Client) => boolean;
  readonly run: (client: Client) => Promise<unknown>;
};

/** Keeps a place for a session until `use` has ended. */
export function withPlace(
  use: (client: Client) => Promise<unknown>,
): Pick<Operation, "isPossible" | "run"> {
  return {
    isPossible: ({ watch }) => watch.places > 0,
    async run(client) {
      client.watch.places -= 1;
      try {
        await use(client);
      } finally {
        client.watch.places += 1;
      }
    },
  };
}

const ids =
  /"(?:(?:job|execution|session|file|batch|parent_execution)_id|sandboxID)":"([0-9a-f-]{36})"/g;

export function newToken(): string {
  return `tok${randomBytes(12).toString("hex")}`;
}
export const newId = (): string => randomUUID();

/** A token as it is, and as base64 has it wherever it begins. */
const forms = new Map<string, readonly string[]>();
function formsOf(token: string): readonly string[] {
  const known = forms.get(token) ?? [
    token,
    ...[0, 1, 2].map((at) =>
      Buffer.from(" ".repeat(at) + token)
        .toString("base64")
        .slice(at === 0 ? 0 : 4, 32),
    ),
  ];
  forms.set(token, known);
  return known;
}

/**
 * An operator drains the agents now and then, and other services' protocols do not let a request wait for long: only so
 * long, and no shorter.
 */
function hasNoRoom(endpoint: string, answer: Answer, tookMs: number): boolean {
  const { status, text } = answer;
  if (status < 429) return false;
  if (isDraining(answer)) return true;
  if (!endpoint.includes(" /compat/")) return false;
  const [, queuedS] = /queue_timeout of (\d+) s/.exec(text) ?? [];
  if (queuedS !== undefined) return tookMs > 1000 * (Number(queuedS) - 1);
  return /No agent has|has room for a session|had not ended in time/.test(text);
}

export const isDraining = ({ text }: Answer): boolean => text.includes("Every agent is draining");

/** An answer that faults alone explain: no room, a lost session, an agent that is gone. */
function isOfFault(endpoint: string, { status, json, text }: Answer): boolean {
  if ([408, 502, 503].includes(status)) return true;
  // It has no body that names the session's end.
  if (status === 409 && endpoint.startsWith("HEAD /sessions/")) return true;
  // A job that a client is about to cancel.
  if (status === 409 && text.includes("has already finished: failed")) return true;
  const { type } = (json["error"] ?? {}) as { type?: string };
  if (json["code"] === "session_ended" || type === "internal_error") return true;
  if (!endpoint.includes(" /compat/")) return false;
  return (
    status === 429 || status >= 500 || /The agent was lost|has ended (\(|at its agent)/.test(text)
  );
}

function differenceOf(actual: unknown, expected: Expected, path: string): string | undefined {
  const wrong = `${path || "the answer"} is ${show(actual)}, and should be ${show(expected)}`;
  if (typeof expected === "function") return expected(actual as never) ? undefined : wrong;
  if (expected === null || typeof expected !== "object") {
    return Object.is(actual, expected) ? undefined : wrong;
  }
  if (actual === null || typeof actual !== "object") return wrong;
  if (Array.isArray(expected) && (actual as unknown[]).length !== expected.length) return wrong;
  for (const [key, value] of Object.entries(expected)) {
    const found = differenceOf((actual as Json)[key], value as Expected, `${path}.${key}`);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** A list with something like this. */
export const some =
  (wanted: Expected) =>
  (all: readonly Json[]): boolean =>
    all.some((one) => differenceOf(one, wanted, "") === undefined);

export function count(counts: Map<string, number>, what: string): void {
  counts.set(what, (counts.get(what) ?? 0) + 1);
}

function show(value: unknown): string {
  const text = typeof value === "function" ? String(value) : (JSON.stringify(value) ?? "");
  return text.length > 1200 ? `${text.slice(0, 1200)} …` : text;
}

function around(text: string, found: string): string {
  const at = text.indexOf(found);
  return JSON.stringify(text.slice(Math.max(0, at - 80), at + found.length + 40));
}
