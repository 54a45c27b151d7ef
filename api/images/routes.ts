import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import {
  Build,
  BuildResult,
  type BuildSpec,
  JobTypeDeleted,
  JobTypeList,
  JobTypeView,
  OwnJobType,
  VersionTag,
} from "../../shared/wire/job-types.ts";
import { listAgents } from "../agents/fleet.ts";
import { languagesThere, presentImages, servingAgents } from "../agents/placement.ts";
import type { ClientDeps, Deps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { jsonBody } from "../http/body.ts";
import { actorOf, type AppEnv } from "../http/context.ts";
import { at } from "../http/examples.ts";
import { body, json, problems } from "../http/responses.ts";
import { type Environment, toJobTypeView } from "../jobs/environment.ts";
import { readEnvironment, readEnvironments } from "../jobs/read.ts";
import { buildImage, deleteOwnType, describeBuild, putOwnType } from "./builds.ts";
import { lastBuild } from "./sql.ts";

const digest = "sha256:b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

const jobType: JobTypeView = {
  name: "science",
  preset: null,
  requirements: ["numpy==2.3.4"],
  apt: ["graphviz"],
  npm: [],
  python_version: "3.13.5",
  memory_limit: "2g",
  cpu_limit: 2,
  pids: 128,
  timeout: 120,
  image_exists: true,
  languages: [
    { name: "python", version: "3.13.5" },
    { name: "bash", version: "5.2.37" },
  ],
};

const buildResult: BuildResult = {
  status: "built",
  job_type: "science",
  version: `science@${digest}`,
  digest,
  image_ref: "airlock-science:v1.2.3",
};

const build: Build = {
  status: "running",
  job_type: "science",
  image_ref: "airlock-science:v1.2.3",
  version: null,
  digest: null,
  error: null,
  step: 2,
  steps: 2,
  created_at: at("00.000"),
  started_at: at("00.010"),
  ended_at: null,
  log: "[2/2] pip: numpy==2.3.4\nCollecting numpy==2.3.4\n",
};

const nameParam = z.object({
  name: z.string().openapi({ param: { name: "name", in: "path" }, example: jobType.name }),
});

const ownName = "search.report";

const ownNameParam = z.object({
  name: z.string().openapi({ param: { name: "name", in: "path" }, example: ownName }),
});

const ownJobType: OwnJobType = OwnJobType.parse({
  extends: "default",
  apt: ["graphviz"],
  requirements: ["weasyprint==66.0"],
  timeout: 20,
});

/** Job types, and builds of their images. */
export function jobTypeRoutes(app: OpenAPIHono<AppEnv>, deps: Deps): void {
  const { config, db, now } = deps;

  async function show(environments: Environment[]): Promise<JobTypeView[]> {
    const serving = servingAgents(await listAgents(db), config, now());
    const present = presentImages(serving);
    return environments.map((environment) =>
      toJobTypeView(environment, present, languagesThere(environment, serving), config),
    );
  }

  const list = createRoute({
    method: "get",
    path: "/job-types",
    operationId: "listJobTypes",
    summary: "Every job type",
    responses: {
      200: json(JobTypeList, "`default` first.", { example: [jobType] }),
    },
  });
  app.openapi(list, async (c) => c.json(await show(await readEnvironments(c.get("client"))), 200));

  const single = createRoute({
    method: "get",
    path: "/job-types/{name}",
    operationId: "getJobType",
    summary: "One job type",
    request: { params: nameParam },
    responses: {
      200: json(JobTypeView, "The job type as it is now.", { example: jobType }),
    },
  });
  app.openapi(single, async (c) => {
    const environment = await find(c.get("client"), c.req.valid("param").name);
    const [view] = await show([environment]);
    return c.json(view as JobTypeView, 200);
  });

  const put = createRoute({
    method: "put",
    path: "/job-types/{name}",
    operationId: "putJobType",
    summary: "Make or change a job type of your tenant",
    description:
      "Off unless `tenant_job_types` is set. The name begins with your tenant's and a dot, such as `search.report`; other tenants do not see it. Jobs that wait run with the new definition; if its packages change, its image is built again by itself.",
    middleware: jsonBody(config.max_request_bytes),
    request: { params: ownNameParam, ...body(OwnJobType, { example: ownJobType }) },
    responses: {
      200: json(JobTypeView, "The job type as it is now.", {
        example: { ...jobType, name: ownName },
      }),
      ...problems("not_found", "conflict"),
    },
  });
  app.openapi(put, async (c) => {
    const { name } = c.req.valid("param");
    await putOwnType(deps, c.get("client"), name, c.req.valid("json"), actorOf(deps, c));
    const [view] = await show([await find(c.get("client"), name)]);
    return c.json(view as JobTypeView, 200);
  });

  const removal = createRoute({
    method: "delete",
    path: "/job-types/{name}",
    operationId: "deleteJobType",
    summary: "Remove a job type of your tenant",
    description:
      "Jobs and sessions that wait for it fail with `config_error`. Running jobs finish; its sessions take no more calls. Agents remove its images.",
    request: { params: ownNameParam },
    responses: {
      200: json(JobTypeDeleted, "Removed.", { example: { name: ownName, deleted: true } }),
      ...problems("conflict"),
    },
  });
  app.openapi(removal, async (c) => {
    const { name } = c.req.valid("param");
    await deleteOwnType(deps, c.get("client"), name, actorOf(deps, c));
    return c.json({ name, deleted: true as const }, 200);
  });

  const startBuild = createRoute({
    method: "post",
    path: "/job-types/{name}/build",
    operationId: "buildJobType",
    summary: "Build a job type's image",
    description:
      "An agent installs the requirements into the base image; from then on jobs of this type run on the result. Answers when the build has ended. Equal requests share one build, which continues if the client hangs up.",
    request: {
      params: nameParam,
      query: z.object({
        version_tag: VersionTag.optional().openapi({
          description:
            "Semantic version that the image is tagged with, and that the records of its jobs carry as `job_version`. Without it, `latest`, a tag that every build moves.",
          example: "v1.2.3",
        }),
      }),
    },
    responses: {
      200: json(BuildResult, "Built.", { example: buildResult }),
      ...problems("build_failed", "engine_failed"),
    },
  });
  app.openapi(startBuild, async (c) => {
    const environment = await find(c.get("client"), c.req.valid("param").name);
    const { version_tag } = c.req.valid("query");
    const { signal } = c.req.raw;
    const by = actorOf(deps, c);
    return c.json(await buildImage(deps, environment, version_tag, by, signal), 200);
  });

  const getBuild = createRoute({
    method: "get",
    path: "/job-types/{name}/build",
    operationId: "getBuild",
    summary: "A job type's last build and its log",
    description: "The log is also there while the build runs.",
    request: { params: nameParam },
    responses: {
      200: json(Build, "The build as it is now.", { example: build }),
    },
  });
  app.openapi(getBuild, async (c) => {
    const { jobType } = await find(c.get("client"), c.req.valid("param").name);
    const last = await lastBuild(db, jobType.name);
    // The name may have been a tenant's before it was the configuration's, or the other way round.
    const isIts = (JSON.parse(last?.spec ?? "{}") as BuildSpec).tenant === jobType.made?.tenant;
    if (!last || !isIts) throw notFound(`A build of job type ${jobType.name}`);
    return c.json(await describeBuild(deps, last), 200);
  });
}

async function find(client: ClientDeps, name: string): Promise<Environment> {
  const environment = await readEnvironment(client, name);
  if (!environment) throw notFound(`Job type ${name}`);
  return environment;
}
