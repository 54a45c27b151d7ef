import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once, setMaxListeners } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";
import { constants, loadavg, setPriority } from "node:os";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { residentBytes } from "../../shared/testing/memory.ts";
import { type HostWatch, watchHost } from "../../agent/testing/hostile.ts";
import type { NodeProcess } from "../../api/testing/start-node.ts";
import { jsonRequest } from "../operate/command.ts";
import { startTestService, type TestService } from "../testing/test-service.ts";

describe("clients", () => {
  /** How long each attack lasts, and the control before it. */
  const attackS = Number(process.env["ATTACK_S"] ?? 20);
  const MiB = 1024 * 1024;
  const allowed = { helloRatio: 2, liveMs: 100, bytes: 300 * MiB };
  /** An attacker is on another machine. Here it sends from one of the two CPUs, and the kernel's part of that has no priority. */
  const sendingRatio = 3;
  /** The attacker's jobs have a CPU each, and the two CPUs serve five jobs: their number is the operator's choice. */
  const codeRatio = 8;

  type Attack = {
    /** Makes the job that the attack asks for. */
    readonly prepare?: (by: Attacker) => Promise<void>;
    readonly run: (by: Attacker) => Promise<unknown>;
    readonly helloRatio?: number;
  };

  const args = (times: number): string => `{"code":"0","args":[${'"",'.repeat(times - 1)}""]}`;
  const keys = (times: number): string =>
    `{${Array.from({ length: times }, (_, n) => `"k${n}":""`).join()}}`;
  const toolCall = (json: string): string =>
    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":${json}}}`;
  const run = (code: string): string => JSON.stringify({ code });

  const lines = `for n in range(16384): print("x" * 63)`;
  /** A control character has six in JSON. */
  const bigRecord = `import os, json
for fd in (1, 2): os.write(fd, b"\\x01" * (1 << 20))
json.dump({"x": "x" * (9 << 20)}, open("/output/result.json", "w"))`;
  const millionValues = `open("/output/result.json", "w").write('{"x":[' + "1," * 999_990 + "1]}")`;
  const millionWrites = `import os\nfor _ in range(1_000_000): os.write(1, b"x")`;

  /** The numbers are those of the findings that it repeats. */
  const attacks: Readonly<Record<string, Attack>> = {
    "155: 10 connections pipeline 50,000 × GET /health and read nothing": {
      helloRatio: sendingRatio,
      run: (by) => by.connect(10, () => "GET /health HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50_000)),
    },
    "156: 10 × args of 3.4 million": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(10, "POST /execute", args(3_400_000)),
    },
    "156: 10 × input_data of 750,000 keys": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(10, "POST /execute", `{"code":"0","input_data":${keys(750_000)}}`),
    },
    "156: 10 × metadata of 750,000 keys": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(10, "POST /execute", `{"code":"0","metadata":${keys(750_000)}}`),
    },
    "156: a batch of 28 MiB": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(1, "POST /execute/batch", `{"jobs":[${args(9_700_000)}]}`),
    },
    "156: 10 × a call of MCP with 3.4 million values": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(10, "POST /mcp", toolCall(args(3_400_000))),
    },
    "156: 4 × result.json of a million values": {
      helloRatio: codeRatio,
      run: (by) => by.repeat(4, "POST /execute", run(millionValues)),
    },
    "157: 60 bodies of 32 MiB less one byte": {
      run: (by) => {
        const head = by.head("POST /execute/batch", `Content-Length: ${32 * MiB}`);
        const bytes = Buffer.concat([Buffer.from(head), Buffer.alloc(32 * MiB - 1, " ")]);
        return by.connect(60, () => bytes);
      },
    },
    "158: a body of 5 million chunks of one byte": {
      run: (by) => {
        const head = by.head("POST /execute", "Transfer-Encoding: chunked");
        return by.connect(1, () => head + "1\r\n \r\n".repeat(5_000_000));
      },
    },
    "159: 200 slow readers of the events of an ended job with an input of 9 MB": {
      prepare: (by) => by.finish({ code: lines, input_data: { text: "x".repeat(9 * MiB) } }),
      run: (by) => by.connect(200, () => by.head(`GET /jobs/${by.job}/events`), readKiB),
    },
    "160: 100 slow readers of a record of 20 MB": {
      prepare: (by) => by.finish({ code: bigRecord }),
      run: (by) => by.connect(100, () => by.head(`GET /executions/${by.job}?view=all`), readKiB),
    },
    "161: 60 jobs that sleep": {
      run: (by) => by.submit(60, { code: "import time; time.sleep(25)" }),
    },
    "10 × a body nested 5 million deep": {
      helloRatio: sendingRatio,
      run: (by) => by.repeat(10, "POST /execute", `{"input_data":${"[".repeat(5_000_000)}`),
    },
    "900 connections that say nothing": { run: (by) => by.connect(900, () => "") },
    "700 heads, a byte a second": {
      run: (by) =>
        by.connect(
          700,
          () => "GET / HTTP/1.1\r\nX: ",
          (socket) => socket.write("x"),
        ),
    },
    "2,000 wait for a result": {
      prepare: async (by) => {
        [by.job] = await by.submit(1, { code: `import time; time.sleep(${attackS})` });
      },
      run: (by) => by.connect(2000, () => by.head(`GET /jobs/${by.job}/result?wait=true`)),
    },
    "50 heads of 1 MB": {
      run: (by) => by.connect(50, () => by.head("GET /executions", `X-Long: ${"x".repeat(MiB)}`)),
    },
    "4 × a million writes of one byte": {
      helloRatio: codeRatio,
      run: (by) => by.repeat(4, "POST /execute", run(millionWrites)),
    },
  };

  const readKiB = (socket: Socket): unknown => socket.read(1024);

  /** A tenant with keys of its own, as the rate limit is one of each key. */
  class Attacker {
    job: string | undefined;
    refused = 0;
    #jobs: string[] = [];
    #sent = 0;
    readonly #url: string;
    readonly #keys: readonly string[];
    #signal: AbortSignal;

    constructor(url: string, keys: readonly string[], signal: AbortSignal) {
      [this.#url, this.#keys, this.#signal] = [url, keys, signal];
    }

    head(target: string, ...headers: string[]): string {
      const own = ["Host: x", `X-API-Key: ${this.#key()}`, "Content-Type: application/json"];
      return [`${target} HTTP/1.1`, ...own, ...headers, "", ""].join("\r\n");
    }

    /** Sends a body again and again, with so many requests at once. */
    async repeat(atOnce: number, target: string, body: string): Promise<void> {
      const bytes = Buffer.from(body);
      const one = async (): Promise<void> => {
        while (!this.#signal.aborted) await this.#ask(target, bytes).catch(() => sleep(50));
      };
      await Promise.all(Array.from({ length: atOnce }, one));
    }

    /** Opens connections that send this and read the status only, and then do something each second. */
    async connect(
      count: number,
      bytes: () => string | Buffer,
      act: (socket: Socket) => unknown = () => {},
    ): Promise<void> {
      const sockets = Array.from({ length: count }, () => {
        const socket = connect(Number(new URL(this.#url).port), "127.0.0.1");
        socket.on("error", () => {});
        socket.once("readable", () => {
          if (/^HTTP\/1.1 [45]/.test(String(socket.read(12)))) this.refused++;
        });
        socket.write(bytes());
        return socket;
      });
      while (!this.#signal.aborted) {
        await sleep(1000);
        for (const socket of sockets) if (!socket.destroyed) act(socket);
      }
      for (const socket of sockets) socket.destroy();
    }

    async submit(count: number, body: object): Promise<string[]> {
      const ids: string[] = [];
      for (let n = 0; n < count; n++) {
        const answer = await this.#ask("POST /execute/async", JSON.stringify(body));
        const { job_id } = JSON.parse(answer) as { job_id?: string };
        if (job_id) ids.push(job_id);
      }
      this.#jobs.push(...ids);
      return ids;
    }

    /** Runs a job to its end, which the attack then asks for. */
    async finish(body: object): Promise<void> {
      [this.job] = await this.submit(1, body);
      const record = await this.#ask(`GET /jobs/${this.job}/result?wait=true&timeout=240`);
      if (!record.includes('"succeeded"')) throw new Error(record.slice(0, 1000));
    }

    async cancelJobs(): Promise<void> {
      this.#signal = new AbortController().signal;
      for (const id of this.#jobs) await this.#ask(`POST /jobs/${id}/cancel`).catch(() => {});
    }

    #key(): string {
      return this.#keys[this.#sent++ % this.#keys.length]!;
    }

    async #ask(target: string, body?: string | Buffer): Promise<string> {
      const [method, path = ""] = target.split(" ");
      const headers = {
        "X-API-Key": this.#key(),
        "Content-Type": "application/json",
        Accept: "application/json, text/event-stream",
      };
      const options = { method, headers, agent: false, signal: this.#signal };
      const asked = request(this.#url + path, options).on("error", () => {});
      asked.end(body);
      const [reply] = (await once(asked, "response")) as [IncomingMessage];
      if (reply.statusCode! >= 400) this.refused++;
      return text(reply);
    }
  }

  type Seen = {
    readonly hello: number;
    readonly live: number;
    readonly rss: number;
    /** Right answers to hellos. */
    readonly hellos: number;
    /** Other answers, and closed connections. */
    readonly failed: number;
  };

  /**
   * Measures from a process of its own, as the attack keeps this one busy: another tenant's hello, one after another, and the
   * probe. What has no answer at the end counts with the time that it has waited. It is sent as text, so it imports nothing.
   */
  function watch(): void {
    const { get, request } = process.getBuiltinModule("node:http");
    const { existsSync, readFileSync } = process.getBuiltinModule("node:fs");
    type Given = { url: string; keys: string[]; pid: number };
    const { url, keys, pid } = JSON.parse(process.argv[1]!) as Given;
    const waiting = { hello: new Set<number>(), live: new Set<number>() };
    const took = { hello: [] as number[], live: [] as number[] };
    let [hellos, failed, sent, rss] = [0, 0, 0, 0];

    const time = (
      kind: "hello" | "live",
      asked: import("node:http").ClientRequest,
    ): Promise<void> =>
      new Promise((resolve) => {
        const start = performance.now();
        waiting[kind].add(start);
        const end = (right: boolean): void => {
          if (!waiting[kind].delete(start)) return;
          took[kind].push(performance.now() - start);
          if (!right) failed++;
          else if (kind === "hello") hellos++;
          resolve();
        };
        asked.on("error", () => end(false));
        asked.on("response", (reply) => {
          let answer = "";
          reply.on("data", (part) => (answer += part));
          const isRight = (): boolean => kind === "live" || answer.includes(`"stdout":"1\\n"`);
          reply.on("close", () => end(reply.statusCode === 200 && isRight()));
        });
      });
    const hello = async (): Promise<void> => {
      const headers = {
        "X-API-Key": keys[sent++ % keys.length],
        "Content-Type": "application/json",
      };
      const asked = request(`${url}/execute`, { method: "POST", headers, agent: false });
      asked.end(`{"code":"print(1)"}`);
      await time("hello", asked);
      setTimeout(() => void hello(), 10);
    };
    setInterval(() => {
      const status = existsSync(`/proc/${pid}`) ? readFileSync(`/proc/${pid}/status`, "utf8") : "";
      rss = Math.max(rss, Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024);
      void time("live", get(`${url}/health/live`, { agent: false }));
    }, 100);
    void hello();
    process.once("message", () => {
      const p95 = (kind: "hello" | "live"): number => {
        const all = [
          ...took[kind],
          ...[...waiting[kind]].map((start) => performance.now() - start),
        ];
        return all.sort((a, b) => a - b)[Math.floor(all.length * 0.95)] ?? 0;
      };
      const seen: Seen = { hello: p95("hello"), live: p95("live"), rss, hellos, failed };
      process.send!(seen, undefined, undefined, () => process.exit());
    });
  }

  /** Watches while something goes on. */
  async function seen(api: NodeProcess, goesOn: Promise<unknown>): Promise<Seen> {
    const given = JSON.stringify({ url: api.url, keys: victim, pid: api.child.pid });
    const watcher = atUsualPriority(() =>
      spawn(process.execPath, ["-e", `(${watch.toString()})()`, given], {
        stdio: ["ignore", "inherit", "inherit", "ipc"],
      }),
    );
    await goesOn;
    watcher.send("end");
    const [found] = (await once(watcher, "message")) as [Seen];
    return found;
  }

  /**
   * An attacker is on another machine, so this process has the lowest priority while it attacks. What it starts inherits
   * its priority.
   */
  const attackPriority = constants.priority.PRIORITY_LOW;
  function atUsualPriority<T>(start: () => T): T {
    setPriority(constants.priority.PRIORITY_NORMAL);
    try {
      return start();
    } finally {
      setPriority(attackPriority);
    }
  }

  const operators = Object.keys(attacks).map(() => `operator-${randomUUID()}`);
  let service: TestService<NodeProcess>;
  let victim: readonly string[];

  /** Keys of a tenant, of which an operator can make 120 a minute. */
  async function makeKeys(operator: string, tenant: string, count: number): Promise<string[]> {
    const made: string[] = [];
    for (let n = 0; n < count; n++) {
      const asked = { name: `key-${n}`, tenant, scopes: ["run", "read"] };
      const by = { "X-API-Key": operator };
      const response = await fetch(`${service.url}/keys`, jsonRequest("POST", asked, by));
      expect(response.status).toBe(201);
      made.push(((await response.json()) as { key: string }).key);
    }
    return made;
  }

  beforeAll(async () => {
    service = await startTestService({
      api: {
        AIRLOCK_API_AUTH_ENABLED: "true",
        AIRLOCK_OPERATOR_KEYS: operators.join(),
        AIRLOCK_API_RATE_LIMIT_ENABLED: "true",
      },
    });
    await service.startAgent("agent", { AIRLOCK_WARM_POOL_SIZE: "" });
    victim = await makeKeys(operators[0]!, "victim", 40);
    setPriority(attackPriority);
  });
  afterAll(() => service?.[Symbol.asyncDispose]());

  async function restartApi(): Promise<void> {
    setPriority(constants.priority.PRIORITY_NORMAL);
    await service.startApi();
    setPriority(attackPriority);
  }

  const rounded = (...of: number[]): string => of.map((n) => Math.round(n)).join(" / ");
  const isAlive = ({ child }: NodeProcess): boolean =>
    child.exitCode === null && child.signalCode === null;

  test.each(Object.entries(attacks).map(([name, attack], n) => ({ ...attack, name, n })))(
    "another tenant does not notice: $name",
    async ({ name, n, prepare, run, helloRatio = allowed.helloRatio }) => {
      if (!isAlive(service.api())) await restartApi();
      const api = service.api();
      const over = new AbortController();
      setMaxListeners(0, over.signal);
      const attackers = await makeKeys(operators[n]!, `attacker-${n}`, 20);
      const attacker = new Attacker(api.url, attackers, over.signal);
      await seen(api, sleep(2000));
      const before = await seen(api, sleep(attackS * 1000));

      await prepare?.(attacker);
      attacker.refused = 0;
      const attacking = run(attacker).catch(() => {});
      const during = await seen(api, sleep(attackS * 1000));
      over.abort();
      await attacking;
      const { refused } = attacker;
      await attacker.cancelJobs();
      await sleep(10_000);
      const rssAfter = isAlive(api) ? residentBytes(api.child.pid!) : 0;
      const next = await seen(api, sleep(2000));

      const hello = rounded(before.hello, during.hello);
      const live = rounded(before.live, during.live);
      const memory = rounded(before.rss / MiB, during.rss / MiB, rssAfter / MiB);
      console.log(
        `${name} | hello p95 ${hello} ms | live p95 ${live} ms | RSS ${memory} MiB | refused ${refused} | load ${loadavg()[0]!.toFixed(1)}`,
      );
      const broken = Object.entries({
        hello: during.hello > helloRatio * before.hello,
        live: during.live > before.live + allowed.liveMs,
        "memory taken": during.rss > before.rss + allowed.bytes,
        "memory kept": rssAfter > before.rss + allowed.bytes,
        "refused or without an answer": during.failed > 0,
        ended: !isAlive(api),
        "no hello afterwards": next.hellos === 0,
      }).flatMap(([bound, isBroken]) => (isBroken ? [bound] : []));
      expect(broken).toEqual([]);
    },
  );
});

/** One of each kind; what they come to is the other tests' concern. */
const kinds: Record<string, string> = {
  "never ends": "while True: pass",
  "ignores SIGTERM":
    "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nwhile True: time.sleep(9)",
  "hides processes":
    "import os, time\nfor _ in range(20):\n    if os.fork() == 0: os.setsid(); time.sleep(600)",
  "forks without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
  "takes all memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
  "dies of a signal": "import os; os.kill(os.getpid(), 11)",
  "signals everyone":
    "import os\nfor pid in (1, -1):\n    try: os.kill(pid, 9)\n    except OSError: pass",
  "fills its folders":
    "for folder in ('/tmp', '/output', '/dev/shm'):\n    try:\n        with open(folder + '/x', 'wb') as f:\n            while True: f.write(b'x' * (1 << 20))\n    except OSError: pass",
  "floods its output": "import os\nfor _ in range(100): os.write(1, b'x' * (1 << 20))",
  "forges frames":
    "import os\nfor fd in range(1, 4096):\n    try: os.write(fd, b'X\\0\\0\\0\\2{}')\n    except OSError: pass",
  "leaves traps":
    "import os\nos.symlink('/', 'root'); os.mkfifo('result.json')\nfor i in range(300): open('f%d' % i, 'w').write('x')",
  "closes everything": "import os; os.closerange(0, 4096)",
};

describe.each(["runc", "runsc"])("under %s", (runtime) => {
  test("a hundred hostile jobs in a row leave descriptors, memory, containers, mounts and processes as before", async () => {
    await using service = await startTestService({
      api: {
        AIRLOCK_MAX_QUEUE_SIZE: "200",
        AIRLOCK_JOB_TYPES: JSON.stringify({ default: { memory_limit: "96m" } }),
      },
    });
    const agent = await service.startAgent("agent", {
      AIRLOCK_CONTAINER_RUNTIME: runtime,
      AIRLOCK_WARM_POOL_SIZE: "",
    });
    let watch: HostWatch | undefined;
    try {
      // The heap has its size only after some of each.
      await runAll(service, 3);
      watch = await watchHost(agent.name, agent.process.pid);
      await runAll(service, Math.ceil(100 / Object.keys(kinds).length));
      expect(await service.execute("print('next')")).toMatchObject({ stdout: "next\n" });
      await watch.isFlat();
      agent.process.kill("SIGTERM");
      expect(await agent.exit).toBe(0);
      // Only now, as a pool keeps containers ready.
      await watch.isClean();
    } finally {
      watch?.close();
    }
  }, 600_000);
});

/** Runs each kind some times, as many at once as the agent takes. */
async function runAll(service: TestService, times: number): Promise<void> {
  const all = Array.from({ length: times }, () => Object.entries(kinds)).flat();
  const jobs = await Promise.all(
    all.map(async ([kind, code]) => {
      return { kind, id: await service.submit(code, {}, { timeout: 1 }) };
    }),
  );
  const broken: unknown[] = [];
  for (const { kind, id } of jobs) {
    const { json } = await service.send("GET", `/jobs/${id}/result?wait=true&timeout=240`);
    const { error } = json as { error?: { type: string } };
    if (["internal_error", "docker_error", "unknown"].includes(error?.type ?? ""))
      broken.push([kind, error]);
  }
  expect(broken).toEqual([]);
}
