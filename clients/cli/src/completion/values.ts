import type { Airlock } from "../../../typescript/src/index.ts";
import { age } from "../words.ts";
import type { Candidate } from "./complete.ts";

type Lookup = (airlock: Airlock) => Promise<Candidate[]>;

/** Job ids are long and begin alike, so commands take the end of an id. */
const endLength = 12;

const types: Lookup = async ({ api }) =>
  (await api.listJobTypes()).map(({ name, python_version }) => [name, `Python ${python_version}`]);

const jobs: Lookup = async ({ api }) => {
  const { items } = await api.listExecutions({
    limit: 100,
    fields: "status,job_type,created_at",
  });
  return items.map(({ execution_id, status, job_type, created_at }) => [
    execution_id.slice(-endLength),
    `${status}, ${job_type}, ${age(created_at)} ago`,
  ]);
};

const sessions: Lookup = async ({ api }) =>
  (await api.listSessions({ limit: 100 })).items
    .filter(({ status }) => status !== "ended")
    .map(({ session_id, status, job_type, created_at }) => [
      session_id.slice(-endLength),
      `${status}, ${job_type}, ${age(created_at)} ago`,
    ]);

/** Functions that get the values of an argument or option, by its name. */
export const lookups: Readonly<Record<string, Lookup>> = {
  job: jobs,
  session: sessions,
  "job-type": types,
  jobType: types,
  "file-id": async ({ files }) => (await files.list()).map(({ file_id, name }) => [file_id, name]),
  agent: async ({ api }) =>
    (await api.getPoolStats()).agents.map(({ name, state }) => [name, state]),
  host: async ({ api }) =>
    (await api.listHosts()).hosts.filter((one) => !one.revoked_at).map(({ name }) => [name]),
  key: async ({ keys }) =>
    (await keys.list())
      .filter((one) => one.revoked_at === null)
      .map(({ name, tenant, scopes }) => [name, `${tenant}: ${scopes.join(", ")}`]),
  tenant: async ({ tenants }) => (await tenants.list()).map(({ name }) => [name]),
  "dead-letter": async ({ api }) =>
    (await api.listDeadLetters({ limit: 100 })).items.map((one) => [
      String(one.id),
      `${one.error_type}, ${age(one.created_at)} ago`,
    ]),
  delivery: async ({ api }) =>
    (await api.listWebhookDeliveries({ limit: 100 })).items.map((one) => [
      String(one.id),
      `${one.status}, ${age(one.created_at)} ago`,
    ]),
};
