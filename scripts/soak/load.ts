import { createHmac } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { endpointsOf, type OpenApiDocument } from "../../api/testing/openapi-document.ts";
import { openApiCheck } from "../../api/testing/openapi-check.ts";
import {
  type Answering,
  type Receiver,
  receiverSecret,
  startReceiver,
} from "../../api/testing/receiver.ts";
import { jsonRequest } from "../command/json-request.ts";
import { Client, count, newToken, type Operation, type Tenant, type Watch } from "./client.ts";
import { operations, operatorOperations } from "./operations.ts";
import { random } from "./random.ts";

/** The first one has the keys of the configuration, and requests of protocols without keys. */
const names = ["default", "maps", "search"] as const;
const clientsOfEach = 8;

export const soakKeys = {
  operator: "soak-operator-key-0123456789",
  tenant: "soak-key-0123456789abcdef",
};

/** Calls are signed for each tenant with a secret of its own. */
function secretOf(tenant: string): string {
  if (tenant === "default") return receiverSecret;
  const key = Buffer.from(receiverSecret.slice("whsec_".length), "base64");
  return `whsec_${createHmac("sha256", key).update(tenant).digest("base64")}`;
}

/** Receivers of the tenants' webhooks, and the configuration of a service that clients of several tenants use. */
export async function prepareTenants() {
  /** The most calls that a receiver had at once. */
  let most = 0;
  const answering = (): Answering => {
    const open = new Map<string, number>();
    return (response, { path }) => {
      count(open, path);
      most = Math.max(most, open.get(path)!);
      setTimeout(() => {
        open.set(path, open.get(path)! - 1);
        response.writeHead(204).end();
      }, 20);
    };
  };
  const receivers = new Map<string, Receiver>();
  for (const name of names)
    receivers.set(name, await startReceiver(answering(), 0, secretOf(name)));
  const [, second] = names;
  const endpoint = {
    url: `${receivers.get(second)!.url}/endpoint`,
    tenants: [second],
    secrets: [secretOf(second)],
  };
  return {
    receivers,
    mostCallsAtOnce: () => most,
    vars: {
      AIRLOCK_API_AUTH_ENABLED: "true",
      AIRLOCK_API_KEYS: soakKeys.tenant,
      AIRLOCK_OPERATOR_KEYS: soakKeys.operator,
      AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
      AIRLOCK_MAX_QUEUE_SIZE: "2000",
      AIRLOCK_COMPAT: "sandbox-fusion,piston,dify,librechat,e2b",
      AIRLOCK_COMPAT_KEY: soakKeys.tenant,
      AIRLOCK_JOB_TYPES: JSON.stringify({
        small: { memory_limit: "64m" },
        nowhere: { labels: { place: "nowhere" } },
        built: {},
      }),
      AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({ second: endpoint }),
      AIRLOCK_WEBHOOK_CALLBACKS: JSON.stringify({
        hosts: [...receivers.values()].map(({ url }) => url),
        secrets: [receiverSecret],
      }),
      AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
    },
    [Symbol.asyncDispose]: async () => {
      for (const receiver of receivers.values()) await receiver.close();
    },
  };
}
export type Prepared = Awaited<ReturnType<typeof prepareTenants>>;

export type LoadOptions = {
  readonly urls: readonly string[];
  readonly prepared: Prepared;
  readonly seed: number;
  readonly isCalm: boolean;
  /** Sessions that the agents hold at once. */
  readonly places: number;
};

export type Load = {
  readonly watch: Watch;
  /** Begins nothing more; resolves once every client has done what it began. */
  readonly stop: () => Promise<void>;
};

/** Clients of three tenants, and an operator, that do everything that can be done with a service at the same time. */
export async function startLoad({
  urls,
  prepared,
  seed,
  isCalm,
  places,
}: LoadOptions): Promise<Load> {
  const end = new AbortController();
  const operator = async <T>(method: string, path: string, body?: object): Promise<T> => {
    const answer = await fetch(
      urls[0] + path,
      jsonRequest(method, body, { "X-API-Key": soakKeys.operator }),
    );
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  };
  const tenantOf = (name: string, key: string): Tenant => {
    const receiver = prepared.receivers.get(name) ?? prepared.receivers.get("default")!;
    return { name, key, token: newToken(), receiver };
  };
  const tenants: Tenant[] = [];
  for (const name of names) {
    const scopes = ["run", "read", "build", "monitor"];
    const { key } = await operator<{ key: string }>("POST", "/keys", {
      name: "soak",
      tenant: name,
      scopes,
    });
    tenants.push(tenantOf(name, name === "default" ? soakKeys.tenant : key));
  }
  const document = await operator<OpenApiDocument>("GET", "/openapi.json");
  const watch: Watch = {
    urls,
    tenants,
    document: openApiCheck(document),
    isCalm,
    places,
    owners: new Map(),
    acknowledged: new Map(),
    lettersRemoved: new Set(),
    performed: new Map(),
    answered: new Map(),
    lost: new Map(),
    violations: [],
    leaks: [],
    requests: 0,
    checks: 0,
    end: end.signal,
  };
  const needed = endpointsOf(document).map(({ method, path }) => `${method} ${path}`);

  const deal = dealer(operations, seed, watch);
  const working = tenants.flatMap((tenant, t) =>
    Array.from({ length: clientsOfEach }, (_, n) =>
      work(new Client(watch, tenant, n, seed + 100 * t + n + 1), deal),
    ),
  );
  const own = new Client(watch, tenantOf("operator", soakKeys.operator), 0, seed);
  working.push(work(own, dealer(operatorOperations, seed, watch)));
  return {
    watch,
    stop: async () => {
      end.abort();
      await Promise.all(working);
      // docs/guides/webhooks.md
      if (prepared.mostCallsAtOnce() > 4 * urls.length) {
        watch.violations.push(`a receiver had ${prepared.mostCallsAtOnce()} calls at once`);
      }
      checkWebhooks(watch);
      // Where things break, an operation may never have gone well.
      if (!isCalm) return;
      for (const { name } of [...operations, ...operatorOperations])
        if (!watch.performed.has(name)) watch.violations.push(`"${name}" never went well`);
      for (const endpoint of needed)
        if (!watch.answered.has(endpoint))
          watch.violations.push(`${endpoint} was never answered well`);
    },
  };
}

async function work(client: Client, deal: Dealer): Promise<void> {
  while (!deal.isOver()) {
    const operation = deal.next(client);
    if (operation && (await client.perform(operation))) continue;
    if (operation) deal.giveBack(operation);
    // What fails at once would keep the others out.
    await sleep(1000);
  }
}

type Dealer = {
  /** Undefined if there is none that is possible now. */
  readonly next: (client: Client) => Operation | undefined;
  readonly giveBack: (operation: Operation) => void;
  readonly isOver: () => boolean;
};

/** The first one that is possible now. */
function take(from: Operation[], client: Client): Operation | undefined {
  const n = from.findIndex(({ isPossible }) => isPossible?.(client) ?? true);
  return n < 0 ? undefined : from.splice(n, 1)[0];
}

/** Deals operations like cards: first each of them once, then as often as their weights say. */
function dealer(all: readonly Operation[], seed: number, { end, isCalm }: Watch): Dealer {
  const { next } = random(seed);
  const least = Math.min(...all.map(({ weight }) => weight));
  const cards = all.flatMap((one) => Array<Operation>(Math.round(one.weight / least)).fill(one));
  const first = shuffled(all, next);
  let deck: Operation[] = [];
  return {
    next(client) {
      const operation = take(first, client);
      if (operation || end.aborted) return operation;
      // What is possible for nobody now is dealt anew.
      return take(deck, client) ?? take((deck = shuffled(cards, next)), client);
    },
    giveBack: (operation) => void first.push(operation),
    isOver: () => end.aborted && (first.length === 0 || !isCalm),
  };
}

function shuffled<T>(items: readonly T[], next: () => number): T[] {
  return items
    .map((item) => [next(), item] as const)
    .sort(([a], [b]) => a - b)
    .map(([, item]) => item);
}

function checkWebhooks({ tenants, violations }: Watch): void {
  for (const { name, token, receiver } of tenants) {
    for (const { event, body } of receiver.received) {
      const mark = event.data.metadata?.["mark"];
      const isOwn = event.data.tenant === name && (mark === undefined || mark.startsWith(token));
      if (!isOwn) violations.push(`the receiver of ${name} got ${body}`);
    }
  }
}
