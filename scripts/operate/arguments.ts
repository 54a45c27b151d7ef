import { parseBytes } from "../../shared/bytes.ts";
import {
  HostName,
  KeyFormat,
  KeyName,
  Scope,
  TenantLimits,
  TenantName,
} from "../../shared/wire/access.ts";
import { parseCommandLine, wrongArguments } from "./command.ts";

export type KeysCommand = ReturnType<typeof parseKeysCommand>;

const npmRunKeys = "npm run keys";
const dayMs = 86_400_000;
const [longestMs, oldLongestMs] = [3660 * dayMs, 30 * dayMs];

export const keysHelp = `Usage: ${npmRunKeys} -- <command>

  create --name ci --scopes run,read [--tenant search] [--expires 90d]
                                         prints a new key, which is shown nowhere else; makes the tenant
  list                                   keys; never the keys themselves
  rotate <name or id> [--old-valid 1d]   prints another key with the same id; the old one holds for that long
         create and rotate take --format e2b: a key as E2B's clients before 2.50 ask for
  revoke <name or id>                    voids a key
  limits <tenant> [--max-queued 100] [--max-running 4] [--max-stored-bytes 10g] [--max-cpu-s-day 3600]
         [--max-requests 600]            sets a tenant's limits and shows them with its use; none: no limit

Scopes: ${Scope.options.join(", ")}. Without --tenant, a key sees the records of the tenant default.
They work on the database of the configured service, also while it runs.
`;

const refuseKeys = (message: string) => wrongArguments(message, npmRunKeys);

const limits = {
  "max-queued": "max_queued",
  "max-running": "max_running",
  "max-stored-bytes": "max_stored_bytes",
  "max-cpu-s-day": "max_cpu_s_day",
  "max-requests": "max_requests",
} as const;
const text = { type: "string" } as const;

/** Which options each command takes. */
const options = {
  create: ["name", "tenant", "scopes", "expires", "format"],
  list: [],
  rotate: ["old-valid", "format"],
  revoke: [],
  limits: Object.keys(limits),
} satisfies Record<string, string[]>;

/** @throws OperatorError with exit code 2. */
export function parseKeysCommand(args: string[]) {
  const { values, positionals } = parseCommandLine(npmRunKeys, {
    args,
    allowPositionals: true,
    options: {
      name: text,
      tenant: text,
      scopes: text,
      expires: text,
      format: text,
      "old-valid": text,
      "max-queued": text,
      "max-running": text,
      "max-stored-bytes": text,
      "max-cpu-s-day": text,
      "max-requests": text,
      help: { type: "boolean", short: "h" },
    },
  });
  const { help, ...given } = values;
  if (help) return { name: "help" } as const;
  const [name = "", subject = "", ...more] = positionals;
  if (!isCommand(name)) throw refuseKeys("say create, list, rotate, revoke or limits");
  const odd = Object.keys(given).find((option) => !(options[name] as string[]).includes(option));
  if (odd !== undefined) throw refuseKeys(`${name} does not take --${odd}`);
  const hasSubject = name === "rotate" || name === "revoke" || name === "limits";
  if (hasSubject !== (subject !== "") || more.length > 0) {
    const what = name === "limits" ? "one tenant" : "one key, by its name or id";
    throw refuseKeys(hasSubject ? `${name} takes ${what}` : `${name} takes options only`);
  }
  if (name === "list") return { name };
  if (name === "revoke") return { name, key: subject };
  if (name === "rotate") {
    const oldValidMs = duration("old-valid", given["old-valid"] ?? "1d", 0, oldLongestMs);
    return { name, key: subject, oldValidMs, format: formatOf(given.format) };
  }
  if (name === "limits") return { name, tenant: tenantOf(subject), changes: limitsOf(given) };
  return {
    name,
    key: nameOf(given.name),
    tenant: tenantOf(given.tenant ?? "default"),
    scopes: scopesOf(given.scopes),
    expiresInMs:
      given.expires === undefined ? null : duration("expires", given.expires, 60_000, longestMs),
    format: formatOf(given.format),
  };
}

function isCommand(name: string): name is keyof typeof options {
  return Object.hasOwn(options, name);
}

function nameOf(given: string | undefined): string {
  const name = KeyName.safeParse(given);
  if (name.success) return name.data;
  if (given) throw refuseKeys(`name "${given}" ${name.error.issues[0]!.message}`);
  throw refuseKeys("create needs --name, with 1 to 128 characters: who uses the key");
}

function tenantOf(given: string): string {
  const name = TenantName.safeParse(given);
  if (name.success) return name.data;
  throw refuseKeys(`tenant "${given}" ${name.error.issues[0]!.message}`);
}

function formatOf(given: string | undefined): KeyFormat {
  const format = KeyFormat.safeParse(given);
  if (format.success) return format.data;
  throw refuseKeys(`--format = "${given}": say airlock or e2b`);
}

function scopesOf(given = ""): Scope[] {
  const names = [...new Set(given.split(","))];
  const scopes = names.flatMap((name) => Scope.safeParse(name).data ?? []);
  if (scopes.length === names.length) return scopes;
  throw refuseKeys(`create needs --scopes, some of ${Scope.options.join(",")}`);
}

function duration(option: string, given: string, leastMs: number, mostMs: number): number {
  const ms = durationMs(given);
  if (ms !== undefined && ms >= leastMs && ms <= mostMs) return ms;
  const most = `${mostMs / dayMs}d`;
  throw refuseKeys(
    `--${option} = "${given}": say minutes, hours or days: 30m, 1h, 90d; at most ${most}`,
  );
}

function limitsOf(given: Partial<Record<keyof typeof limits, string>>): Partial<TenantLimits> {
  const changes: Partial<TenantLimits> = {};
  for (const [option, key] of Object.entries(limits)) {
    const value = given[option as keyof typeof limits];
    if (value === undefined) continue;
    const parsed = TenantLimits.shape[key].safeParse(
      value === "none" ? null : numberOf(key, value),
    );
    if (!parsed.success) throw refuseKeys(`--${option} = "${value}": say a number, or none`);
    changes[key] = parsed.data;
  }
  return changes;
}

function numberOf(key: keyof TenantLimits, value: string): number {
  if (key !== "max_stored_bytes") return Number(value);
  try {
    return parseBytes(value);
  } catch {
    return Number(value);
  }
}

export type AgentsCommand =
  | { readonly name: "help" }
  | { readonly name: "invite"; readonly host: string | null; readonly expiresInMs: number }
  | { readonly name: "list" }
  | { readonly name: "revoke"; readonly agent: string };

const npmRunAgents = "npm run agents";

export const agentsHelp = `Usage: ${npmRunAgents} -- <command>

  invite [--name gpu-1] [--expires 1h]   prints a one-time code that a host joins with
  list                                   agents that have joined; never their tokens
  revoke <name or id>                    voids an agent's token

They work on the database of the configured service, also while it runs.
`;

const inviteLongestMs = 30 * 86_400_000;

const refuseAgents = (message: string) => wrongArguments(message, npmRunAgents);

/** @throws OperatorError with exit code 2. */
export function parseAgentsCommand(args: string[]): AgentsCommand {
  const { values, positionals } = parseCommandLine(npmRunAgents, {
    args,
    allowPositionals: true,
    options: {
      name: { type: "string" },
      expires: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
  const [name, ...rest] = positionals;
  if (values.help) return { name: "help" };
  if (name !== "invite" && (values.name ?? values.expires) !== undefined) {
    throw refuseAgents("--name and --expires belong to invite");
  }
  if (name === "invite" && rest.length === 0) {
    const host = values.name === undefined ? null : HostName.safeParse(values.name).data;
    if (host === undefined) throw refuseAgents("--name takes 1 to 128 characters");
    return { name, host, expiresInMs: lifetimeMs(values.expires ?? "1h") };
  }
  if (name === "list" && rest.length === 0) return { name };
  if (name === "revoke" && rest.length === 1) return { name, agent: rest[0] ?? "" };
  throw refuseAgents("say invite, list, or revoke with one name or id");
}

function lifetimeMs(text: string): number {
  const ms = durationMs(text) ?? 0;
  if (ms >= 60_000 && ms <= inviteLongestMs) return ms;
  throw refuseAgents(`--expires = "${text}": say minutes, hours or days: 30m, 1h, 2d; at most 30d`);
}

const unitMs = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Milliseconds of a text such as 30m, 1h or 2d; undefined if it is none. */
function durationMs(text: string): number | undefined {
  const [, count = "", unit = ""] = /^(\d{1,5})([smhd])$/.exec(text) ?? [];
  return unit === "" ? undefined : Number(count) * unitMs[unit as keyof typeof unitMs];
}
