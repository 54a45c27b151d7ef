import type { Command } from "commander";
import { auditActions, scopes } from "../../shared/wire/limits.ts";
import type {
  ApiKey,
  AuditAction,
  NewApiKey,
  Scope,
  TenantLimits,
  TenantUsage,
  Usage,
} from "../typescript/src/index.ts";
import { UsageError } from "./exit.ts";
import {
  age,
  bytes,
  duration,
  parseBytes,
  parseCount,
  parseDuration,
  parseNumber,
} from "./terminal.ts";
import {
  addCommand,
  does,
  findOne,
  forEach,
  oneOf,
  showList,
  showOption,
  showPage,
  type Tool,
} from "./tool.ts";

interface CreateOptions {
  name: string;
  scopes: string;
  expires?: string;
  format?: KeyFormat;
}

type KeyFormat = "airlock" | "e2b";
const formatOption = () =>
  oneOf("--format <form>", "how it looks: e2b for E2B's clients before 2.50", ["airlock", "e2b"]);

interface RotateOptions {
  oldValid: string;
  format?: KeyFormat;
}

/** Commands about API keys, and what their tenants may use. */
export function addKeys(program: Command): void {
  const keys = addCommand(program, "keys", "API keys, and the limits of those who have them");
  const create = addCommand(keys, "create", "make a key; it is shown once")
    .requiredOption("--name <name>", "who uses it, for people")
    .addOption(
      oneOf("--scopes <list>", "what it may do, with commas", scopes).makeOptionMandatory(),
    )
    .option("--expires <duration>", "how long it is valid, such as 90d; default: until revoked");
  create.addOption(formatOption());
  showOption(create, "--tenant", "whose records it sees; is made if it is new; default: your own");
  create.action(does(createKey));

  addCommand(keys, "list", "list keys, also those that are void")
    .alias("ls")
    .action(does(listKeys));

  addCommand(keys, "rotate", "make a new key in the place of one; it is shown once")
    .argument("<key>", "its id or name, from airlock keys list")
    .option("--old-valid <duration>", "how long the old key holds too; 0 ends it at once", "1d")
    .addOption(formatOption())
    .action(
      does(async (tool: Tool, given: string, { oldValid, format }: RotateOptions) => {
        const [found] = await find(tool, [given]);
        const old_valid_s = /^0[smhd]?$/.test(oldValid) ? 0 : seconds(oldValid, "--old-valid");
        const key = await tool.airlock.keys.rotate(found!.id, {
          old_valid_s,
          ...(format && { format }),
        });
        show(tool, key);
        if (tool.terminal.json) return;
        const until = old_valid_s === 0 ? "is void" : `holds for ${duration(old_valid_s * 1000)}`;
        tool.terminal.note(`The old key ${until}.`);
      }),
    );

  addCommand(keys, "revoke", "make keys void")
    .argument("<key...>", "their ids or names, from airlock keys list")
    .action(
      does(async (tool: Tool, given: string[]) => {
        const found = new Map((await find(tool, given)).map((key) => [key.id, key.name]));
        return forEach(
          tool,
          [...found.keys()],
          (id) => tool.airlock.keys.revoke(id),
          (_, id) => `${found.get(id)} is revoked`,
        );
      }),
    );
  addLimits(keys);
}

async function createKey(
  tool: Tool,
  { name, scopes, expires, format }: CreateOptions,
): Promise<void> {
  const { tenant } = tool.globals;
  if (tenant === "*") throw new UsageError("--tenant * has no keys: name one tenant");
  const key = await tool.airlock.keys.create({
    name,
    scopes: scopes.split(/[\s,]+/).filter(Boolean) as Scope[],
    ...(tenant !== undefined && { tenant }),
    ...(expires !== undefined && { expires_in_s: seconds(expires, "--expires") }),
    ...(format && { format }),
  });
  show(tool, key);
}

const seconds = (text: string, option: string): number =>
  Math.round(parseDuration(text, option) / 1000);

/** Only the key goes to standard output, so that a script can keep it. */
function show({ terminal }: Tool, key: NewApiKey): void {
  if (terminal.json) return terminal.document(key);
  terminal.line(key.key);
  const end = key.expires_at === null ? "" : `, until ${key.expires_at}`;
  terminal.note(
    `\nIt is not shown again. ${key.name} may ${key.scopes.join(", ")} for the tenant ${key.tenant}${end}.`,
  );
}

async function listKeys(tool: Tool): Promise<void> {
  const { tenant } = tool.globals;
  const keys = await tool.airlock.keys.list(
    tenant === undefined || tenant === "*" ? {} : { tenant },
  );
  showList(tool, keys, "no keys: airlock keys create makes one", {
    ID: ({ id }) => id,
    TENANT: (key) => key.tenant,
    STATE: stateOf,
    USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
    EXPIRES: ({ expires_at }) => expires_at?.slice(0, 10) ?? "never",
    SCOPES: ({ scopes }) => scopes.join(","),
    NAME: ({ name }) => name,
  });
}

function stateOf({ revoked_at, expires_at, old_valid_until }: ApiKey): string {
  if (revoked_at !== null) return "revoked";
  if (expires_at !== null && isOver(expires_at)) return "expired";
  return isOver(old_valid_until) ? "valid" : "rotating";
}

async function find({ airlock }: Tool, given: readonly string[]): Promise<ApiKey[]> {
  const open = (await airlock.keys.list()).filter(({ revoked_at }) => revoked_at === null);
  return given.map((one) => findOne(open, one, "key", "airlock keys list"));
}

const isOver = (time: string | undefined): boolean =>
  time === undefined || Date.parse(time) <= Date.now();

interface LimitOptions {
  maxQueued?: string;
  maxRunning?: string;
  maxStoredBytes?: string;
  maxCpuSDay?: string;
  maxRequests?: string;
}

/** The command about the limits of tenants. */
function addLimits(keys: Command): void {
  addCommand(keys, "limits", "show what tenants use and may use, or set limits of one")
    .argument("[tenant]", "one tenant; is made if it is new and gets limits")
    .option("--max-queued <count>", "jobs that may wait; none takes a limit away")
    .option("--max-running <count>", "jobs that may run at once; others wait")
    .option("--max-stored-bytes <size>", "all that it stores, such as 10g")
    .option("--max-cpu-s-day <seconds>", "CPU time of its jobs in a day, such as 3600 or 1h")
    .option("--max-requests <count>", "requests with its keys in the window of the rate limit")
    .action(
      does(async (tool: Tool, name: string | undefined, options: LimitOptions) => {
        const { airlock, terminal } = tool;
        const changes = parseLimits(options);
        if (name === undefined) {
          if (Object.keys(changes).length > 0) throw new UsageError("name the tenant to limit");
          return listTenants(tool);
        }
        const tenant =
          Object.keys(changes).length === 0
            ? await airlock.tenants.get(name)
            : await airlock.tenants.setLimits(name, {
                ...(await limitsOf(tool, name)),
                ...changes,
              });
        if (terminal.json) terminal.document(tenant);
        else for (const line of describeUsage({ ...tenant, tenant: name })) terminal.line(line);
      }),
    );
}

/** Commands about the tenant of the key, and what was changed. */
export function addTenants(program: Command): void {
  addCommand(program, "usage", "show what your tenant uses and may use").action(
    does(async ({ airlock, terminal }: Tool) => {
      const usage = await airlock.usage();
      if (terminal.json) terminal.document(usage);
      else {
        for (const line of describeUsage(usage)) terminal.line(line);
        terminal.line(`your key  ${(await airlock.api.getOwnKey()).scopes.join(", ")}`);
      }
    }),
  );

  addCommand(program, "audit", "list what was changed and by whom, the newest first")
    .addOption(oneOf("--action <action>", "one kind of change", auditActions))
    .option("-n, --number <count>", "at most so many", "20")
    .action(
      does(async (tool: Tool, options: AuditOptions) => {
        const { action, number } = options;
        const { tenant } = tool.globals;
        const page = await tool.airlock.api.listAudit({
          ...(action !== undefined && { action: action as AuditAction }),
          ...(tenant !== undefined && tenant !== "*" && { tenant }),
          limit: parseCount(number),
        });
        showPage(tool, page, number, "nothing was changed", {
          AGE: ({ at }) => age(at),
          ACTION: (entry) => entry.action,
          BY: ({ key_name }) => key_name,
          TENANT: ({ tenant }) => tenant,
          TARGET: ({ target }) => target,
          DETAIL: ({ detail }) => (detail ? JSON.stringify(detail) : ""),
        });
      }),
    );
}

interface AuditOptions {
  action?: string;
  number: string;
}

/** The limits that the options name; `none` is null. */
function parseLimits(options: LimitOptions): Partial<TenantLimits> {
  const limits: Partial<TenantLimits> = {};
  for (const [name, option, parse] of limitOptions) {
    const text = options[option];
    if (text === "none") limits[name] = null;
    else if (text !== undefined) limits[name] = parse(text, `--${name.replaceAll("_", "-")}`);
  }
  return limits;
}

const parseSeconds = (text: string, option: string): number =>
  /^\d+$/.test(text) ? Number(text) : Math.round(parseDuration(text, option) / 1000);

type Parse = (text: string, option: string) => number;

const limitOptions: [keyof TenantLimits, keyof LimitOptions, Parse][] = [
  ["max_queued", "maxQueued", parseNumber],
  ["max_running", "maxRunning", parseNumber],
  ["max_stored_bytes", "maxStoredBytes", parseBytes],
  ["max_cpu_s_day", "maxCpuSDay", parseSeconds],
  ["max_requests", "maxRequests", parseNumber],
];

/** Those that it has: the service takes all at once. A new tenant has none. */
async function limitsOf({ airlock }: Tool, name: string): Promise<TenantLimits> {
  const all = await airlock.tenants.list();
  return all.find((one) => one.name === name)?.limits ?? {};
}

async function listTenants({ airlock, terminal }: Tool): Promise<void> {
  const tenants = await airlock.tenants.list();
  if (terminal.json) return terminal.document(tenants);
  terminal.table(
    [
      { title: "QUEUED", right: true },
      { title: "RUNNING", right: true },
      { title: "STORED", right: true },
      { title: "CPU TODAY", right: true },
      { title: "REQUESTS", right: true },
      { title: "TENANT" },
    ],
    tenants.map(({ name, usage, limits }) => [
      ...rowsOf(usage, limits).map(([, used, limit]) => [used, limit].filter(Boolean).join(" / ")),
      name,
    ]),
  );
}

function* describeUsage({ tenant, usage, limits }: Usage): Generator<string> {
  yield `tenant    ${tenant}`;
  for (const [name, used, limit] of rowsOf(usage, limits)) {
    const of = limit === undefined ? "no limit" : `of at most ${limit}`;
    yield `${name.padEnd(9)} ${used === "" ? (limit ?? "no limit") : `${used}, ${of}`}`;
  }
}

/** What is used, how much of it, and how much may be. */
function rowsOf(usage: TenantUsage, limits: TenantLimits): [string, string, string | undefined][] {
  return [
    ["queued", String(usage.queued), limit(limits.max_queued)],
    ["running", String(usage.running), limit(limits.max_running)],
    ["stored", bytes(usage.stored_bytes), limit(limits.max_stored_bytes, bytes)],
    ["CPU today", time(usage.cpu_s_today), limit(limits.max_cpu_s_day, time)],
    ["requests", "", limit(limits.max_requests)],
  ];
}

const limit = (value: number | null | undefined, words: (value: number) => string = String) =>
  value === null || value === undefined ? undefined : words(value);

const time = (s: number): string => duration(s * 1000);
