import type { Command } from "commander";
import { auditActions, scopes } from "../../shared/wire/limits.ts";
import type {
  ApiKey,
  NewApiKey,
  Scope,
  TenantLimits,
  TenantUsage,
  Usage,
} from "../typescript/src/index.ts";
import { UsageError } from "./exit.ts";
import { age, bytes, duration, parseBytes, parseNumber, parseSeconds } from "./terminal.ts";
import {
  addCommand,
  findOne,
  forEach,
  given,
  numberOption,
  show,
  showList,
  showOption,
  showPage,
  type Tool,
} from "./tool.ts";

const formatOption = [
  "--format <form>",
  "how it looks: e2b for E2B's clients before 2.50",
  { choices: ["airlock", "e2b"] },
] as const;

/** Commands about API keys, and what their tenants may use. */
export function addKeys(program: Command): void {
  const about = "API keys, and the limits of those who have them";
  const keys = addCommand(program, "keys", about).command;
  const create = addCommand(keys, "create", "make a key; it is shown once")
    .option("--name <name>", "who uses it, for people", { required: true })
    .option("--scopes <list>", "what it may do, with commas", { choices: scopes, required: true })
    .option(
      "--expires <duration>",
      "how long it is valid, such as 90d; default: until revoked",
      parseSeconds,
    )
    .option(...formatOption);
  const whose = "whose records it sees; is made if it is new; default: your own";
  showOption(create.command, "--tenant", whose);
  create.does(async (tool, { name, scopes, expires, format }) => {
    const { tenant } = tool.globals;
    if (tenant === "*") throw new UsageError("--tenant * has no keys: name one tenant");
    const key = await tool.airlock.keys.create({
      name,
      scopes: scopes.split(/[\s,]+/).filter(Boolean) as Scope[],
      ...given({ tenant, expires_in_s: expires, format }),
    });
    showKey(tool, key);
  });

  addCommand(keys, "list|ls", "list keys, also those that are void").does(async (tool) => {
    const { tenant } = tool.globals;
    const all = await tool.airlock.keys.list(
      given({ tenant: tenant === "*" ? undefined : tenant }),
    );
    showList(tool, all, "no keys: airlock keys create makes one", {
      ID: ({ id }) => id,
      TENANT: (key) => key.tenant,
      STATE: stateOf,
      USED: ({ last_used_at }) => (last_used_at ? age(last_used_at) : "never"),
      EXPIRES: ({ expires_at }) => expires_at?.slice(0, 10) ?? "never",
      SCOPES: ({ scopes }) => scopes.join(","),
      NAME: ({ name }) => name,
    });
  });

  addCommand(keys, "rotate", "make a new key in the place of one; it is shown once")
    .argument("<key>", "its id or name, from airlock keys list")
    .option("--old-valid <duration>", "how long the old key holds too; 0 ends it at once", {
      default: "1d",
    })
    .option(...formatOption)
    .does(async (tool, word, { oldValid, format }) => {
      const [found] = await find(tool, [word]);
      const old_valid_s = /^0[smhd]?$/.test(oldValid) ? 0 : parseSeconds(oldValid, "--old-valid");
      const rotation = { old_valid_s, ...given({ format }) };
      showKey(tool, await tool.airlock.keys.rotate(found!.id, rotation));
      if (tool.terminal.json) return;
      const until = old_valid_s === 0 ? "is void" : `holds for ${duration(old_valid_s * 1000)}`;
      tool.terminal.note(`The old key ${until}.`);
    });

  addCommand(keys, "revoke", "make keys void")
    .argument("<key...>", "their ids or names, from airlock keys list")
    .does(async (tool, words) => {
      const found = new Map((await find(tool, words)).map((key) => [key.id, key.name]));
      const revoke = forEach(
        ({ keys }, id) => keys.revoke(id),
        (_, id) => `${found.get(id)} is revoked`,
      );
      return revoke(tool, [...found.keys()]);
    });

  addCommand(keys, "limits", "show what tenants use and may use, or set limits of one")
    .argument("[tenant]", "one tenant; is made if it is new and gets limits")
    .option(
      "--max-queued <count>",
      "jobs that may wait; none takes a limit away",
      orNone(parseNumber),
    )
    .option("--max-running <count>", "jobs that may run at once; others wait", orNone(parseNumber))
    .option("--max-stored-bytes <size>", "all that it stores, such as 10g", orNone(parseBytes))
    .option(
      "--max-cpu-s-day <seconds>",
      "CPU time of its jobs in a day, such as 3600 or 1h",
      orNone(parsePlainSeconds),
    )
    .option(
      "--max-requests <count>",
      "requests with its keys in the window of the rate limit",
      orNone(parseNumber),
    )
    .does(async (tool, name, options) => {
      const { tenants } = tool.airlock;
      const changes: Partial<TenantLimits> = given({
        max_queued: options.maxQueued,
        max_running: options.maxRunning,
        max_stored_bytes: options.maxStoredBytes,
        max_cpu_s_day: options.maxCpuSDay,
        max_requests: options.maxRequests,
      });
      const isShown = Object.keys(changes).length === 0;
      if (name === undefined) {
        if (!isShown) throw new UsageError("name the tenant to limit");
        return listTenants(tool);
      }
      const tenant = isShown
        ? await tenants.get(name)
        : await tenants.setLimits(name, { ...(await limitsOf(tool, name)), ...changes });
      show(tool, tenant, ...describeUsage({ ...tenant, tenant: name }));
    });
}

/** A limit as an option has it: "none" takes it away. */
const orNone =
  (parse: (text: string, option: string) => number) =>
  (text: string, option: string): number | null =>
    text === "none" ? null : parse(text, option);

const parsePlainSeconds = (text: string, option: string): number =>
  /^\d+$/.test(text) ? Number(text) : parseSeconds(text, option);

/** Only the key goes to standard output, so that a script can keep it. */
function showKey({ terminal }: Tool, key: NewApiKey): void {
  if (terminal.json) return terminal.document(key);
  terminal.line(key.key);
  const end = key.expires_at === null ? "" : `, until ${key.expires_at}`;
  terminal.note(
    `\nIt is not shown again. ${key.name} may ${key.scopes.join(", ")} for the tenant ${key.tenant}${end}.`,
  );
}

function stateOf({ revoked_at, expires_at, old_valid_until }: ApiKey): string {
  if (revoked_at !== null) return "revoked";
  if (expires_at !== null && isOver(expires_at)) return "expired";
  return isOver(old_valid_until) ? "valid" : "rotating";
}

async function find({ airlock }: Tool, words: readonly string[]): Promise<ApiKey[]> {
  const open = (await airlock.keys.list()).filter(({ revoked_at }) => revoked_at === null);
  return words.map((one) => findOne(open, one, "key", "airlock keys list"));
}

const isOver = (time: string | undefined): boolean =>
  time === undefined || Date.parse(time) <= Date.now();

/** Commands about the tenant of the key, and what was changed. */
export function addTenants(program: Command): void {
  addCommand(program, "usage", "show what your tenant uses and may use").does(async (tool) => {
    const usage = await tool.airlock.usage();
    show(tool, usage, ...describeUsage(usage));
    if (tool.terminal.json) return;
    const { scopes } = await tool.airlock.api.getOwnKey();
    tool.terminal.line(`your key  ${scopes.join(", ")}`);
  });

  addCommand(program, "audit", "list what was changed and by whom, the newest first")
    .option("--action <action>", "one kind of change", { choices: auditActions })
    .option(...numberOption)
    .does(async (tool, { action, number }) => {
      const { tenant } = tool.globals;
      const filters = given({ action, tenant: tenant === "*" ? undefined : tenant });
      const page = await tool.airlock.api.listAudit({ ...filters, limit: number });
      showPage(tool, page, number, "nothing was changed", {
        AGE: ({ at }) => age(at),
        ACTION: (entry) => entry.action,
        BY: ({ key_name }) => key_name,
        TENANT: (entry) => entry.tenant,
        TARGET: ({ target }) => target,
        DETAIL: ({ detail }) => (detail ? JSON.stringify(detail) : ""),
      });
    });
}

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
