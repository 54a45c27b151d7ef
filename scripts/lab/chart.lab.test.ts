import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { Ajv2020 } from "ajv/dist/2020.js";
import { parse } from "smol-toml";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { loadConfig } from "../../shared/config/config.ts";
import { tempFolder } from "../../shared/testing/test-file.ts";
import { HELM, KUBERNETES_SCHEMAS } from "../setup/tools.ts";
import { needs } from "../testing/needs.ts";

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
type Pod = { containers: Container[] };
type Container = { name: string; env?: { name: string; value?: string }[] };

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
