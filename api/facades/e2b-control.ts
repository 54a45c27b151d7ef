import { z } from "zod";
import { base64url, concatBytes, fromBase64, parseBytes } from "../../shared/bytes.ts";
import type { JobTypeView } from "../../shared/wire/job-types.ts";
import { Session, SessionPage } from "../../shared/wire/sessions.ts";
import { ask, type Call, parseBody, post, problemOf, Refusal } from "./facade.ts";

/** What the facade knows of its service. */
export interface Service {
  readonly tokens: Tokens;
  /** Longest time limit of code. */
  readonly maxTimeoutS: number;
}

/** Clients of this version of the daemon use the smallest part of its interface. */
const envdVersion = "0.4.0";
const defaultTimeoutS = 300;
const waitS = 30;
/** Templates of E2B's own. */
const plainTemplates = ["base", "code-interpreter-v1"];

const NotOffered = z
  .custom<undefined>(
    (value) => !value || (Array.isArray(value) && value.length === 0),
    "is not offered",
  )
  .optional();
const Create = z.object({
  templateID: z.string(),
  timeout: z.int().min(1).default(defaultTimeoutS),
  metadata: z.record(z.string(), z.string()).nullish(),
  envVars: z.record(z.string(), z.string()).nullish(),
  allow_internet_access: z.boolean().nullish(),
  autoPause: NotOffered,
  autoResume: z.object({ enabled: NotOffered }).nullish(),
  volumeMounts: NotOffered,
  mcp: NotOffered,
  network: NotOffered,
  iam: NotOffered,
});
const Timeout = z.object({ timeout: z.int().min(1).optional() });

/** The control plane: a sandbox is a session. */
export async function control(call: Call, service: Service): Promise<Response> {
  const [, id = "", what = ""] = call.path
    .replace(/^\/v2(?=\/)/, "")
    .split("/")
    .slice(1);
  switch (`${call.method} ${id && "one"} ${what}`.trim()) {
    case "POST":
      return create(call, service);
    case "GET":
      return list(call);
    case "GET one":
      return Response.json(await describe(call, await running(call, id)));
    case "DELETE one":
      await running(call, id);
      await ask(call, `/sessions/${id}`, { method: "DELETE" });
      return new Response(null, { status: 204 });
    case "POST one connect":
      return connect(call, service, id);
    case "POST one timeout": {
      const { timeout = defaultTimeoutS } = await parseBody(Timeout, await call.text(), 400);
      await setLifetime(call, id, timeout);
      return new Response(null, { status: 204 });
    }
    case "GET one metrics":
      await running(call, id);
      return Response.json([]);
  }
  throw new Refusal(501, `This service has no ${call.method} ${call.path}.`);
}

async function create(call: Call, service: Service): Promise<Response> {
  const asked = await parseBody(Create, await call.text(), 400);
  const key = call.headers.get("Idempotency-Key");
  const { templateID, timeout, metadata, envVars, allow_internet_access } = asked;
  const isPlain = plainTemplates.includes(templateID) && call.networkOf(templateID) === undefined;
  const job_type = isPlain ? "default" : templateID;
  const network = call.networkOf(job_type);
  if (network === undefined) throw new Refusal(404, `There is no template ${templateID}.`);
  // Clients before 2.51 send true unless their program sets it.
  if (allow_internet_access === false && network !== "none") {
    throw new Refusal(400, `allow_internet_access: the job type ${job_type} has a network.`);
  }
  const session = Session.parse(
    await post(call, "/sessions", {
      job_type,
      lifetime: timeout,
      idle_timeout: null,
      wait: waitS,
      ...(envVars && { env: envVars }),
      ...(metadata && { metadata }),
      ...(key !== null && { idempotency_key: key }),
    }),
  );
  if (session.status !== "ready") {
    await ask(call, `/sessions/${session.session_id}`, { method: "DELETE" });
    throw new Refusal(429, session.message ?? "No agent has had room for the sandbox.");
  }
  return Response.json(await made(call, service, session), { status: 201 });
}

async function connect(call: Call, service: Service, id: string): Promise<Response> {
  const { timeout } = await parseBody(Timeout, (await call.text()) || "{}", 400);
  const session = await running(call, id);
  const leftMs = Date.parse(session.expires_at) - Date.now();
  // Connecting makes no life shorter.
  if (timeout !== undefined && timeout * 1000 > leftMs) await setLifetime(call, id, timeout);
  return Response.json(await made(call, service, session));
}

async function setLifetime(call: Call, id: string, lifetime: number): Promise<void> {
  await running(call, id);
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ lifetime });
  await ask(call, `/sessions/${id}`, { method: "PATCH", headers, body });
}

async function list(call: Call): Promise<Response> {
  const { metadata, limit, nextToken, state, ...others } = Object.fromEntries(call.query);
  const [other] = Object.keys(others);
  if (other !== undefined) throw new Refusal(400, `${other}: is not offered`);
  if (state && !state.split(",").includes("running")) return Response.json([]);
  const size = Math.min(100, Number(limit) || 100);
  const before = nextToken ? `&before=${encodeURIComponent(nextToken)}` : "";
  const page = SessionPage.parse(await ask(call, `/sessions?status=ready&limit=${size}${before}`));
  const wanted = wantedOf(metadata);
  const found = page.items.filter((one) =>
    wanted.every(([name, value]) => one.metadata?.[name ?? ""] === value),
  );
  const types = new Map<string, Promise<object>>();
  const sandboxes = found.map((session) => describe(call, session, types));
  const last = page.items.at(-1)?.session_id;
  const headers = page.has_more && last !== undefined ? { "x-next-token": last } : {};
  return Response.json(await Promise.all(sandboxes), { headers });
}

/** Pairs that clients encode twice. @throws Refusal 400 */
function wantedOf(metadata: string | undefined): string[][] {
  try {
    return [...new URLSearchParams(metadata)].map((pair) => pair.map(decodeURIComponent));
  } catch {
    throw new Refusal(400, "metadata: is not percent-encoded");
  }
}

/** @throws Refusal 404 if the session is unknown or has ended. */
export async function running({ api, signal }: Call, id: string): Promise<Session> {
  const answer = await api(`/sessions/${encodeURIComponent(id)}`, { signal });
  const text = await answer.text();
  const session = answer.ok ? Session.parse(JSON.parse(text)) : undefined;
  if (session && session.status !== "ended") return session;
  const isGone = session !== undefined || [400, 404, 422].includes(answer.status);
  if (isGone) throw new Refusal(404, `sandbox ${id} was not found`);
  throw new Refusal(answer.status, problemOf(text).detail);
}

async function made(call: Call, { tokens }: Service, session: Session): Promise<object> {
  const token = await tokens.seal(call.key, session.session_id);
  return {
    ...names(session),
    envdVersion,
    envdAccessToken: token,
    trafficAccessToken: token,
    domain: null,
  };
}

const names = ({ job_type, session_id }: Session) => ({
  templateID: job_type,
  sandboxID: session_id,
  clientID: "airlock",
});

async function describe(
  call: Call,
  session: Session,
  types = new Map<string, Promise<object>>(),
): Promise<object> {
  const { job_type, created_at, expires_at, metadata = {} } = session;
  if (!types.has(job_type)) types.set(job_type, machine(call, job_type));
  return {
    ...names(session),
    envdVersion,
    startedAt: session.ready_at ?? created_at,
    endAt: expires_at,
    state: "running",
    metadata,
    ...(await types.get(job_type)),
  };
}

async function machine(call: Call, jobType: string): Promise<object> {
  // The job type was removed; its sessions go on.
  if (call.networkOf(jobType) === undefined) return { cpuCount: 0, memoryMB: 0, diskSizeMB: 0 };
  const view = (await ask(call, `/job-types/${jobType}`)) as JobTypeView;
  const memoryMB = Math.floor(parseBytes(view.memory_limit) / 1024 ** 2);
  // Files are in memory.
  return { cpuCount: Math.ceil(view.cpu_limit), memoryMB, diskSizeMB: memoryMB };
}

/**
 * What a client gets with a sandbox, and sends for it in place of an API key: the key, sealed for this one session. So
 * nothing is stored, and a key that is revoked takes its tokens with it.
 */
interface Tokens {
  seal(key: string | undefined, session: string): Promise<string>;
  /** The key; undefined if the token is not one of this session's. */
  open(token: string, session: string): Promise<string | undefined>;
}

const ivBytes = 12;

const importKey = (bytes: Uint8Array<ArrayBuffer>) =>
  crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]);

const algorithm = (iv: Uint8Array<ArrayBuffer>, session: string) => ({
  name: "AES-GCM",
  iv,
  additionalData: new TextEncoder().encode(session),
});

/** @param secret 32 bytes that all processes share. */
export function createTokens(secret: () => Promise<Uint8Array<ArrayBuffer>>): Tokens {
  let known: ReturnType<typeof importKey> | undefined;
  const aes = () => {
    known ??= secret().then(importKey);
    known.catch(() => (known = undefined));
    return known;
  };
  return {
    async seal(key = "", session) {
      const iv = crypto.getRandomValues(new Uint8Array(ivBytes));
      const text = new TextEncoder().encode(key);
      const sealed = await crypto.subtle.encrypt(algorithm(iv, session), await aes(), text);
      return base64url(concatBytes([iv, new Uint8Array(sealed)]));
    },
    async open(token, session) {
      const secretKey = await aes();
      try {
        const bytes = fromBase64(token.replaceAll("-", "+").replaceAll("_", "/"));
        const iv = bytes.slice(0, ivBytes);
        const opened = await crypto.subtle.decrypt(
          algorithm(iv, session),
          secretKey,
          bytes.slice(ivBytes),
        );
        return new TextDecoder().decode(opened);
      } catch {
        return undefined;
      }
    },
  };
}
