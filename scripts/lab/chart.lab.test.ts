import { execFile, execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { Ajv2020 } from "ajv/dist/2020.js";
import type Docker from "dockerode";
import { parse } from "smol-toml";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { testEngine } from "../../agent/testing/engine.ts";
import { rawEngine, removeImages } from "../../agent/testing/raw-engine.ts";
import { loadConfig } from "../../shared/config/config.ts";
import { tempFolder, waitUntil } from "../../shared/testing/test-file.ts";
import type { ExecutionRecord, SyncResult } from "../../shared/wire/executions.ts";
import type { Health } from "../../shared/wire/health.ts";
import { ensureEngineImage } from "../setup/derived-images.ts";
import { HELM, KUBERNETES_SCHEMAS } from "../setup/tools.ts";
import { copyBaseImage, makeServiceBase, mountsIn } from "../testing/machine.ts";
import { needs } from "../testing/needs.ts";

const machine = process.env["AIRLOCK_DOCKER_HOST"] ?? "unix:///var/run/docker.sock";
const chart = join(import.meta.dirname, "../../packaging/chart");

type Values = Record<string, unknown>;
/** As much of Kubernetes' objects as the tests read; their schema is the other half. */
type Manifest = {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  data?: Record<string, string>;
  spec?: { replicas?: number; template?: { spec: Pod } };
};
type Pod = {
  hostUsers?: boolean;
  terminationGracePeriodSeconds: number;
  securityContext?: { fsGroup?: number };
  initContainers?: Container[];
  containers: Container[];
  volumes: {
    name: string;
    emptyDir?: object;
    persistentVolumeClaim?: { claimName: string };
    configMap?: { name: string };
  }[];
};
type Container = {
  name: string;
  image: string;
  command?: string[];
  args?: string[];
  env?: {
    name: string;
    value?: string;
    valueFrom?: { secretKeyRef: { name: string; key: string } };
  }[];
  envFrom?: { secretRef: { name: string } }[];
  securityContext: {
    privileged?: boolean;
    runAsUser: number;
    runAsGroup?: number;
    readOnlyRootFilesystem?: boolean;
    allowPrivilegeEscalation?: boolean;
    capabilities?: { add?: string[]; drop?: string[] };
    seccompProfile?: { type: "RuntimeDefault" | "Unconfined" };
    appArmorProfile?: { type: "Unconfined" };
    procMount?: "Unmasked";
  };
  volumeMounts: { name: string; mountPath: string; readOnly?: boolean }[];
  startupProbe?: Probe;
  readinessProbe?: Probe;
};
type Probe = { exec?: { command: string[] }; httpGet?: { path: string } };

/** What helm prints, or what it says if it refuses. */
async function helm(args: readonly string[], values: Values = {}): Promise<string> {
  const child = execFile(HELM, args, { maxBuffer: 2 ** 26 });
  child.stdin?.end(JSON.stringify(values));
  const ended = once(child, "exit") as Promise<[number | null]>;
  const [out, err] = await Promise.all([text(child.stdout!), text(child.stderr!)]);
  const [code] = await ended;
  if (code !== 0) throw new Error(err);
  return out;
}

async function render(values: Values = {}, ...args: string[]): Promise<Manifest[]> {
  const yaml = await helm(["template", "air", chart, "--values", "-", ...args], values);
  return parseAllDocuments(yaml).flatMap((document) => {
    if (document.errors.length > 0) throw new Error(`${document.errors.join("\n")}\n${yaml}`);
    return (document.toJS() as Manifest | null) ?? [];
  });
}

/** One record for each choice of a value for each key. */
function combine(choices: Record<string, readonly unknown[]>): Values[] {
  return Object.entries(choices).reduce<Values[]>(
    (all, [key, values]) => all.flatMap((one) => values.map((value) => ({ ...one, [key]: value }))),
    [{}],
  );
}

/** What Kubernetes' schema of this version has against an object; fields that it does not have included. */
function schemaOf(version: string): (manifest: Manifest) => string[] {
  const schema = JSON.parse(readFileSync(`${KUBERNETES_SCHEMAS}/v${version}.json`, "utf8")) as {
    $id: string;
    $defs: Record<string, { "x-kubernetes-group-version-kind"?: Record<string, string>[] }>;
  };
  const ajv = new Ajv2020({ strict: false, validateFormats: false }).addSchema(schema);
  return (manifest) => {
    const [version = "", group = ""] = manifest.apiVersion.split("/").toReversed();
    const found = Object.entries(schema.$defs).find(
      ([, { ["x-kubernetes-group-version-kind"]: is }]) =>
        is?.some(
          (kind) =>
            kind["kind"] === manifest.kind &&
            kind["version"] === version &&
            kind["group"] === group,
        ),
    );
    if (!found) return [`${manifest.apiVersion} ${manifest.kind} is not known`];
    const validate = ajv.getSchema(`${schema.$id}#/$defs/${found[0]}`)!;
    void validate(manifest);
    return (validate.errors ?? []).map(
      (error) => `${error.instancePath} ${JSON.stringify(error.params)}`,
    );
  };
}

const podsOf = (manifests: readonly Manifest[]): Pod[] =>
  manifests.flatMap(({ spec }) => spec?.template?.spec ?? []);

const shared = {
  config: { database_url: "http://sqld:8080", s3_endpoint: "http://s3:9000", s3_bucket: "airlock" },
  api: { replicas: 3 },
};

/** Every group of agents that the chart makes, by name. */
const groups = Object.fromEntries(
  combine({
    kind: ["Deployment", "DaemonSet"],
    confined: [false, true],
    hostPath: ["", "/var/lib/airlock"],
    max: [0, 3],
  })
    .filter(({ kind, confined, hostPath, max }) =>
      kind === "Deployment" ? !hostPath : !max && !(hostPath && confined),
    )
    .map(({ kind, confined, hostPath, max }, i) => [
      `group-${i}`,
      {
        kind,
        labels: { disk: "fast" },
        tolerations: [{ key: "airlock", operator: "Exists" }],
        nodeSelector: { pool: "agents" },
        engine: { confined, storage: { hostPath } },
        scale: { max },
      },
    ]),
);

const combinations = combine({
  service: [{}, shared],
  ingress: [
    { enabled: false },
    {
      enabled: true,
      host: "airlock.example",
      className: "nginx",
      tlsSecret: "tls",
      annotations: { a: "b" },
    },
  ],
  secret: ["", "own"],
  agents: [{ default: {} }, groups],
  networkPolicy: [
    { enabled: false },
    { egress: [{ to: [{ ipBlock: { cidr: "10.1.0.0/16" } }], ports: [{ port: 443 }] }] },
  ],
  pullSecrets: [[], [{ name: "registry" }]],
}).map(({ service, ingress, ...values }) => {
  const { config = {}, api = {} } = service as Partial<typeof shared>;
  return { ...values, config, api: { ...api, ingress } };
});

describe("the chart", needs("helm", "Kubernetes' schema"), () => {
  test("helm lint finds nothing", async () => {
    expect(await helm(["lint", "--strict", chart])).toContain(
      "1 chart(s) linted, 0 chart(s) failed",
    );
  });

  test("every combination of values gives what the oldest and the newest Kubernetes know", async () => {
    const schemas = ["1.33.0", "1.37.0"].map(schemaOf);
    for (const values of combinations) {
      const manifests = (await render(values)).filter(
        ({ apiVersion }) => apiVersion !== "keda.sh/v1alpha1",
      );
      const faults = manifests.flatMap((manifest) => schemas.flatMap((schema) => schema(manifest)));
      expect({ values, faults }).toEqual({ values, faults: [] });
      for (const pod of podsOf(manifests)) {
        expect(pod).toMatchObject({
          enableServiceLinks: false,
          automountServiceAccountToken: false,
        });
      }
    }
  });

  test("a field that Kubernetes does not have would be noticed", async () => {
    const text = JSON.stringify(await render());
    const misspelt: unknown = JSON.parse(
      text.replaceAll("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
    );
    const faults = (misspelt as Manifest[]).flatMap(schemaOf("1.37.0"));
    const noticed = '{"additionalProperty":"readOnlyRootFileSystem"}';
    expect(faults.map((fault) => fault.split(" ")[1])).toEqual([noticed, noticed]);
  });

  test("without a choice of the operator, nothing of a node is mounted", async () => {
    const text = JSON.stringify(await render());
    expect(text).not.toMatch(/hostPath|docker\.sock|hostNetwork|hostPID/);
    const chosen = { kind: "DaemonSet", engine: { storage: { hostPath: "/var/lib/airlock" } } };
    expect(JSON.stringify(await render({ agents: { big: chosen } }))).toContain(
      '"hostPath":{"path":"/var/lib/airlock/air-airlock-big"',
    );
  });

  const group = (agent: Values) => ({ agents: { big: agent } });
  test.each<[string, Values]>([
    [
      "api.replicas above 1 needs config.database_url (a libSQL server) and config.s3_endpoint",
      { api: { replicas: 2 } },
    ],
    [
      "api.replicas above 1",
      { ...shared, config: { ...shared.config, database_url: "file:/data/db" } },
    ],
    ["api.ingress.host is missing", { api: { ingress: { enabled: true } } }],
    [
      "agents.big.engine: confined excludes privileged",
      group({ engine: { confined: true, privileged: true } }),
    ],
    [
      "agents.big.engine.storage.hostPath needs kind DaemonSet",
      group({ engine: { storage: { hostPath: "/x" } } }),
    ],
    [
      "agents.big.engine: confined excludes storage.hostPath",
      group({ kind: "DaemonSet", engine: { confined: true, storage: { hostPath: "/x" } } }),
    ],
    ["agents.big.scale needs kind Deployment", group({ kind: "DaemonSet", scale: { max: 2 } })],
    ["agents.big.kind is Deployment or DaemonSet", group({ kind: "Job" })],
    ["agents.big.maxWorker is not known", group({ maxWorker: 2 })],
    ["agents.big.engine.privileged is not known", group({ engine: { privileged: true } })],
  ])("refuses: %s", async (message, values) => {
    await expect(render(values)).rejects.toThrow(message);
  });

  test("a confined engine is refused by a cluster that would run it as root of the node", async () => {
    const values = group({ engine: { confined: true } });
    await expect(render(values, "--kube-version=1.32.5")).rejects.toThrow("needs Kubernetes 1.33");
    await render({}, "--kube-version=1.29.0");
  });

  test("configuration is a file that the programs read as it was meant", async () => {
    const config = {
      drain_grace_s: 90,
      max_database_bytes: 50_000_000_000,
      pip_hosts: ["10.1.2.3:8081"],
      job_types: { data: { memory_limit: "1g", env: { A: 'b"\n' }, requirements: ["numpy"] } },
    };
    const map = (await render({ config })).find(({ kind }) => kind === "ConfigMap");
    const settings = { host: "0.0.0.0", api_auth_enabled: true, stop_delay_s: 6, ...config };
    expect(loadConfig(parse(map?.data?.["airlock.toml"] ?? ""), {})).toEqual(
      loadConfig(settings, {}),
    );
  });

  test("KEDA adds agents for the slots that jobs want, with the key of the service", async () => {
    const manifests = await render(group({ maxWorkers: 6, scale: { min: 2, max: 9 } }));
    const [object, authentication, agents] = [
      "ScaledObject",
      "TriggerAuthentication",
      "Deployment",
    ].map((wanted) =>
      manifests.find(
        ({ kind, metadata }) => kind === wanted && metadata.name === "air-airlock-big",
      ),
    );
    expect(object?.spec).toEqual({
      scaleTargetRef: { name: "air-airlock-big" },
      minReplicaCount: 2,
      maxReplicaCount: 9,
      cooldownPeriod: 600,
      advanced: {
        horizontalPodAutoscalerConfig: {
          behavior: { scaleDown: { stabilizationWindowSeconds: 600 } },
        },
      },
      triggers: [
        {
          type: "metrics-api",
          metadata: {
            url: "http://air-airlock.default:8080/metrics",
            format: "prometheus",
            valueLocation: "airlock_wanted_slots",
            targetValue: "6",
            authMode: "apiKey",
            method: "header",
            keyParamName: "X-API-Key",
          },
          authenticationRef: { name: "air-airlock-big" },
        },
      ],
    });
    expect(authentication?.spec).toEqual({
      secretTargetRef: [{ parameter: "apiKey", name: "air-airlock", key: "AIRLOCK_OPERATOR_KEYS" }],
    });
    // The number of agents is KEDA's, and a session would end with an agent that it removes.
    expect(agents?.spec?.replicas).toBeUndefined();
    expect(podsOf([agents!])[0]?.containers[0]?.env).toContainEqual({
      name: "AIRLOCK_MAX_SESSIONS",
      value: "0",
    });
  });

  test("the Secret that an installation made is kept by an upgrade", async () => {
    const secret = (all: Manifest[]) => all.find(({ kind }) => kind === "Secret")?.data ?? {};
    const first = await render();
    const made = secret(first);
    expect(secret(await render())).not.toEqual(made);
    expect(made["AIRLOCK_AGENT_TOKENS"]).toBe(made["AIRLOCK_AGENT_TOKEN"]);
    await using cluster = await serveSecret(first);
    const upgraded = await render(
      {},
      "--dry-run=server",
      "--is-upgrade",
      "--disable-openapi-validation",
      "--kubeconfig",
      cluster.config,
    );
    expect(secret(upgraded)).toEqual(made);
    expect(await render({ secret: "own" })).not.toContainEqual(
      expect.objectContaining({ kind: "Secret" }),
    );
  });
});

describe("the chart's pods as containers", needs("root", "docker", "helm"), () => {
  const name = `airlock-test-${randomUUID()}`;
  let node: Awaited<ReturnType<typeof makeNode>>;
  let api: Awaited<ReturnType<typeof node.start>>;
  let key: string;

  beforeAll(async () => {
    await makeServiceBase(rawEngine, (await testEngine()).image, `${name}-base`);
    const build = ["build", "--quiet", "--tag", name, "--build-arg", `BASE=${name}-base`, "."];
    await promisify(execFile)("docker", build, {
      env: { ...process.env, DOCKER_BUILDKIT: "0", DOCKER_HOST: machine },
    });
    const image = await ensureEngineImage(rawEngine);
    const manifests = await render({
      image: { repository: name, tag: "latest" },
      agents: {
        docker: { maxWorkers: 20, engine: { image } },
        podman: { maxWorkers: 20, engine: { image, confined: true } },
      },
    });
    node = await makeNode(manifests);
    key = node.secret("air-airlock")["AIRLOCK_OPERATOR_KEYS"]!;
    api = await node.start("air-airlock");
  }, 900_000);
  afterAll(async () => {
    await node?.[Symbol.asyncDispose]();
    await removeImages(`${name}-base`, name);
  }, 300_000);

  async function startAgent(group: string): Promise<typeof api> {
    const pod = await node.start(`air-airlock-${group}`);
    await copyBaseImage(machine, pod.socket);
    await waitUntil(
      "jobs can be forked",
      async () => (await ask<Health>("/health")).forks_available === true,
    );
    return pod;
  }

  async function ask<T>(path: string, body?: object): Promise<T> {
    const headers = { "X-API-Key": key, "Content-Type": "application/json" };
    const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    return (await (await fetch(api.url + path, init)).json()) as T;
  }

  const record = (id: string) => ask<ExecutionRecord>(`/executions/${id}?view=full`);

  /** Ids of jobs that run at once. */
  async function begin(count: number, seconds: number): Promise<string[]> {
    const code = `import time; print("begun", flush=True); time.sleep(${seconds}); print("done")`;
    const jobs = Array.from({ length: count }, () => ask<SyncResult>("/execute/async", { code }));
    const ids = (await Promise.all(jobs)).map(({ job_id }) => job_id);
    const begun = async () =>
      (await Promise.all(ids.map(record))).every(({ started_at }) => started_at);
    await waitUntil(`${count} jobs run`, begun);
    return ids;
  }

  async function expectDone(ids: readonly string[]): Promise<void> {
    const result = (id: string) =>
      ask<ExecutionRecord>(`/jobs/${id}/result?wait=true&timeout=120&view=all`);
    const ended = await Promise.all(ids.map(result));
    const outcomes = ended.map(({ status, attempt, stdout }) => ({ status, attempt, stdout }));
    const done = { status: "succeeded", attempt: 1, stdout: "begun\ndone\n" };
    expect(outcomes).toEqual(ids.map(() => done));
  }

  test("KEDA may read the slots that jobs want", async () => {
    const metrics = await fetch(`${api.url}/metrics`, { headers: { "X-API-Key": key } });
    expect(await metrics.text()).toMatch(/^airlock_wanted_slots 0$/m);
  });

  describe.each(["docker", "podman"])("%s beside the agent", (group) => {
    let agent: typeof api;
    beforeAll(async () => {
      agent = await startAgent(group);
    });
    afterAll(async () => {
      await agent?.stop();
    });

    test("a job is forked, and one without memory ends as oom", async () => {
      const done = await ask<SyncResult>("/execute", { code: "print(6 * 7)" });
      expect(done).toMatchObject({ success: true, stdout: "42\n" });
      expect(await record(done.job_id)).toMatchObject({ container_backend: "zygote" });
      const large = await ask<SyncResult>("/execute", { code: "x = bytearray(1 << 30)" });
      expect(await record(large.job_id)).toMatchObject({ status: "oom" });
    });

    test("an API that is replaced under jobs loses none of them", async () => {
      const ids = await begin(5, 10);
      expect((await api.stop()).ExitCode).toBe(0);
      api = await node.start("air-airlock");
      await expectDone(ids);
    });

    test("a pod that is deleted lets its jobs end, and the next one runs new jobs", async () => {
      const ids = await begin(20, 10);
      expect((await agent.stop()).ExitCode).toBe(0);
      await expectDone(ids);
      agent = await startAgent(group);
      await expectDone(await begin(1, 0));
    });
  });
});

/** As much of a cluster as helm asks, where nothing is there but the Secret of `manifests`. */
async function serveSecret(manifests: Manifest[]) {
  const list = (groupVersion: string) => ({
    kind: "APIResourceList",
    groupVersion,
    resources: manifests
      .filter(({ apiVersion }) => apiVersion === groupVersion)
      .map(({ kind }) => ({
        kind,
        name: `${kind.toLowerCase()}s`,
        namespaced: true,
        verbs: ["get"],
      })),
  });
  const versions = [...new Set(manifests.map(({ apiVersion }) => apiVersion))];
  const groups = versions
    .filter((groupVersion) => groupVersion !== "v1")
    .map((groupVersion) => {
      const [name, version] = groupVersion.split("/");
      return { name, versions: [{ groupVersion, version }] };
    });
  const answers: Record<string, unknown> = {
    "/version": { major: "1", minor: "37", gitVersion: "v1.37.0" },
    "/api": { kind: "APIVersions", versions: ["v1"] },
    "/apis": { kind: "APIGroupList", apiVersion: "v1", groups },
    ...Object.fromEntries(
      versions.map((version) => [
        `${version === "v1" ? "/api" : "/apis"}/${version}`,
        list(version),
      ]),
    ),
    "/api/v1/namespaces/default/secrets/air-airlock": manifests.find(
      ({ kind }) => kind === "Secret",
    ),
  };
  const server = createServer(({ url = "" }, response) => {
    const answer = answers[url.split("?")[0] ?? ""];
    response.writeHead(answer ? 200 : 404, { "Content-Type": "application/json" });
    response.end(JSON.stringify(answer ?? { kind: "Status", code: 404, reason: "NotFound" }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const config = join(tempFolder(), "kubeconfig");
  const cluster = { name: "c", cluster: { server: `http://127.0.0.1:${port}` } };
  const context = { name: "c", context: { cluster: "c", user: "u" } };
  writeFileSync(
    config,
    JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [cluster],
      contexts: [context],
      users: [{ name: "u", user: {} }],
      "current-context": "c",
    }),
  );
  return { config, [Symbol.asyncDispose]: async () => void server.close() };
}

/**
 * What Docker's `Privileged` gives a container, named one by one: root of a guest may lack SYS_RESOURCE, and can then start
 * no container with it.
 */
const privileged: Docker.HostConfig = {
  CapAdd: ["ALL"],
  CapDrop: ["SYS_RESOURCE"],
  SecurityOpt: ["seccomp=unconfined", "apparmor=unconfined"],
  MaskedPaths: [],
  ReadonlyPaths: [],
  DeviceCgroupRules: ["a *:* rwm"],
};
/** The types of the engine's client lack it. */
const ownGroups = { CgroupnsMode: "private" };
/** Runs what follows it where control groups can be written: a node gives its engines such ones. */
const writable = [
  "sh",
  "-ec",
  `awk '$2 ~ "^/sys" { print $2 }' /proc/mounts | xargs -n1 mount -o remount,bind,rw; exec "$@"`,
  "sh",
];

/** Runs pods as the kubelet does, as far as Docker can: each container has exactly the settings that the chart gives it. */
async function makeNode(manifests: readonly Manifest[]) {
  const dir = mkdtempSync("/var/tmp/airlock-node-");
  const network = await rawEngine.createNetwork({ Name: `airlock-test-${randomUUID()}` });
  const ids: string[] = [];
  const find = (kind: string, name: string) =>
    manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);

  function makeFolder(path: string, mode: number, group = 0): string {
    mkdirSync(path, { recursive: true });
    chownSync(path, 0, group);
    chmodSync(path, mode);
    return path;
  }

  function sourceOf(pod: Pod, name: string, place: string): string {
    const volume = pod.volumes.find((one) => one.name === name)!;
    const claim = volume.persistentVolumeClaim?.claimName;
    const group = pod.securityContext?.fsGroup;
    if (claim) return makeFolder(join(dir, claim), 0o2775, group);
    if (volume.emptyDir) return makeFolder(join(place, name), group ? 0o2777 : 0o777, group);
    const files = find("ConfigMap", volume.configMap!.name)?.data ?? {};
    const folder = makeFolder(join(place, name), 0o755);
    for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
    return folder;
  }

  function secretOf(name: string): [string, string][] {
    const secret = Object.entries(find("Secret", name)?.data ?? {});
    return secret.map(([key, value]) => [key, Buffer.from(value, "base64").toString()]);
  }

  function environment({ env = [], envFrom = [] }: Container): string[] {
    const all = envFrom.flatMap(({ secretRef }) => secretOf(secretRef.name));
    for (const { name, value = "", valueFrom } of env) {
      const from = valueFrom?.secretKeyRef;
      all.push([name, from ? Object.fromEntries(secretOf(from.name))[from.key]! : value]);
    }
    return all.map(([name, value]) => `${name}=${value}`);
  }

  function securityOf({ securityContext: is }: Container, pod: Pod): Docker.HostConfig {
    const options = [
      ...(is.allowPrivilegeEscalation === false ? ["no-new-privileges"] : []),
      ...(is.seccompProfile?.type === "Unconfined" ? ["seccomp=unconfined"] : []),
      ...(is.appArmorProfile ? ["apparmor=unconfined"] : []),
    ];
    const group = pod.securityContext?.fsGroup;
    if (is.privileged) return privileged;
    return {
      ReadonlyRootfs: is.readOnlyRootFilesystem ?? false,
      CapAdd: is.capabilities?.add ?? [],
      CapDrop: is.capabilities?.drop ?? [],
      SecurityOpt: options,
      ...(group && { GroupAdd: [String(group)] }),
      ...(is.procMount && { MaskedPaths: [], ReadonlyPaths: [] }),
    };
  }

  async function runs(
    container: Docker.Container,
    address: string,
    probe: Probe,
  ): Promise<boolean> {
    if (probe.httpGet) {
      const answer = await fetch(`http://${address}:8080${probe.httpGet.path}`).catch(() => null);
      return answer?.ok ?? false;
    }
    const exec = await container.exec({ Cmd: probe.exec!.command, AttachStdout: true });
    await once((await exec.start({})).resume(), "end");
    return (await exec.inspect()).ExitCode === 0;
  }

  /** Starts the pod of a Deployment, and waits until it is ready. */
  async function start(name: string) {
    const pod = find("Deployment", name)!.spec!.template!.spec;
    const place = makeFolder(join(dir, `${name}-${ids.length}`), 0o755);
    const started: Docker.Container[] = [];
    let address = "";
    for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
      const binds = container.volumeMounts.map(
        (mount) =>
          `${sourceOf(pod, mount.name, place)}:${mount.mountPath}${mount.readOnly ? ":ro" : ""}`,
      );
      const { command, args } = container;
      const { runAsUser, runAsGroup = 0 } = container.securityContext;
      const [first] = started;
      const made = await rawEngine.createContainer({
        Image: container.image,
        // The engines alone have a command.
        ...(command && { Entrypoint: [...writable, ...command] }),
        ...(args && { Cmd: args }),
        Env: environment(container),
        User: `${runAsUser}:${runAsGroup}`,
        HostConfig: {
          ...securityOf(container, pod),
          ...ownGroups,
          Binds: binds,
          NetworkMode: first ? `container:${first.id}` : network.id,
        },
        // What other pods call it: the Service of an API has its name.
        ...(!first && {
          NetworkingConfig: { EndpointsConfig: { [network.id]: { Aliases: [name] } } },
        }),
      });
      ids.push(made.id);
      started.push(made);
      await made.start();
      const { NetworkSettings } = await started[0]!.inspect();
      address = Object.values(NetworkSettings.Networks)[0]!.IPAddress;
      for (const probe of [container.startupProbe, container.readinessProbe]) {
        if (!probe) continue;
        await waitUntil(`${container.name} is up`, async () => {
          if (await runs(made, address, probe)) return true;
          if ((await made.inspect()).State.Running) return false;
          const log = await made.logs({ stdout: true, stderr: true });
          throw new Error(`${container.name} ended: ${log.toString()}`);
        });
      }
    }
    const main = started.at(-1)!;
    return {
      url: `http://${address}:8080`,
      socket: `unix://${place}/shared/engine.sock`,
      main,
      /** As a deletion of the pod; returns how the program ended. */
      stop: async (): Promise<{ ExitCode: number }> => {
        await main.stop({ t: pod.terminationGracePeriodSeconds });
        for (const sidecar of started.slice(0, -1)) await sidecar.stop({ t: 30 });
        return (await main.inspect()).State;
      },
    };
  }

  return {
    start,
    secret: (name: string) => Object.fromEntries(secretOf(name)),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      for (const id of ids) await rawEngine.getContainer(id).remove({ force: true, v: true });
      await network.remove();
      for (const mount of mountsIn(dir)) execFileSync("umount", [mount]);
      rmSync(dir, { recursive: true });
    },
  };
}
