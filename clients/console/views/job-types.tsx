import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { NotFoundError } from "../../typescript/src/errors.ts";
import type { Build, JobType } from "../../typescript/src/generated.ts";
import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/numbers.ts";
import { Output } from "../model/output.ts";
import {
  Age,
  announce,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  Status,
} from "../parts/elements.tsx";
import { OutputView } from "../parts/output.tsx";
import { actions, type Column, digits, number, plain, Table, wide } from "../parts/table.tsx";
import { api, hasScope } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";

/** Job types without an image whose last build is asked for: one request each, within the rate limit of the service. */
const asked = 8;
const askedMs = 15_000;

/** Shows the last build of a job type, below the list. */
const show = (name: string): void => go(addressOf("job-types", { build: name }), { replace: true });

/** The environments that code can run in: whether their image is there, and its build. */
export function JobTypes({ query }: { query: URLSearchParams }) {
  const feed = useFeed("job types", api.listJobTypes);
  /** Names of the job types whose build was asked for here, and has not ended. */
  const awaited = useSignal<readonly string[]>([]);
  const { data, problem, refresh } = feed.value;
  const unbuilt = (data ?? []).filter((type) => !type.image_exists).map(({ name }) => name);
  const missing = hasScope("build") ? unbuilt : [];
  const lastBuilds = useFeed(
    `last builds of ${missing.slice(0, asked).join(" ")}`,
    ({ signal }) => loadBuilds(missing.slice(0, asked), signal),
    askedMs,
  );
  const shown = query.get("build");
  const build = async (name: string): Promise<void> => {
    awaited.value = [...awaited.value, name];
    show(name);
    try {
      await api.buildJobType({ name });
      announce(`${name} is built`);
      refresh();
    } finally {
      awaited.value = awaited.value.filter((other) => other !== name);
      lastBuilds.value.refresh();
    }
  };
  const columns: Column<JobType>[] = [
    plain(
      "Image",
      ({ name, image_exists: exists }) => {
        const last = lastBuilds.value.data?.[name];
        const status = awaited.value.includes(name) ? "running" : last?.status;
        return (
          <>
            <Status status={imageState(exists, status)} />
            {!exists && <StepOf build={last} />}
          </>
        );
      },
      {
        hint: ({ image_exists }) =>
          image_exists
            ? "A connected agent has the image"
            : "No connected agent has the image: its first job brings it",
      },
    ),
    ...described,
    actions(({ name }) => (
      <>
        <ScopedButton
          scope="build"
          class="small"
          aria-label={`Last build of ${name}`}
          onClick={() => show(name)}
        >
          Last build
        </ScopedButton>{" "}
        <ScopedButton
          scope="build"
          class="small"
          aria-label={`Build ${name}`}
          work={() => build(name)}
        >
          Build
        </ScopedButton>
      </>
    )),
  ];
  return (
    <>
      <Heading title="Job types" />
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && <Table columns={columns} items={data} idOf={({ name }) => name} />}
      {shown && <BuildLog key={shown} name={shown} awaited={awaited} />}
    </>
  );
}

const packagesOf = ({ apt, requirements, npm }: JobType): string =>
  [...apt, ...requirements, ...npm].join(", ");

/** What the configuration says of a job type. */
const described: Column<JobType>[] = [
  plain("Job type", ({ name }) => <a href={addressOf("executions", { job_type: name })}>{name}</a>),
  digits("Python", ({ python_version }) => python_version),
  number("Memory", ({ memory_limit }) => memory_limit),
  number("CPUs", ({ cpu_limit }) => cpu_limit),
  number("Time limit", ({ timeout }) => formatDuration(timeout * 1000)),
  wide("Packages", (type) => packagesOf(type) || "no packages of its own", {
    class: "quiet",
    hint: packagesOf,
  }),
];

/** Which step of a running build runs. */
function StepOf({ build }: { build: Pick<Build, "status" | "step" | "steps"> | undefined }) {
  if (build?.status !== "running" || build.step === null) return null;
  return (
    <span class="quiet">
      {" "}
      step {build.step} of {build.steps}
    </span>
  );
}

function imageState(exists: boolean, last: Build["status"] | undefined): string {
  if (last === "running" || last === "queued") return "building";
  if (exists) return "built";
  return last === "failed" ? "build failed" : "not built";
}

/** The last builds of some job types, by name. */
async function loadBuilds(
  names: string[],
  signal: AbortSignal,
): Promise<Record<string, Build | undefined>> {
  const builds = names.map(async (name) => [name, await findBuild(name, signal)]);
  return Object.fromEntries(await Promise.all(builds)) as Record<string, Build | undefined>;
}

async function findBuild(name: string, signal: AbortSignal): Promise<Build | undefined> {
  try {
    return await api.getBuild({ name }, { signal });
  } catch (error) {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  }
}

interface BuildLogProps {
  name: string;
  awaited: ReadonlySignal<readonly string[]>;
}

/** The last build of a job type, followed to its end. */
function BuildLog({ name, awaited }: BuildLogProps) {
  const section = useRef<HTMLElement>(null);
  const isAwaited = (): boolean => awaited.value.includes(name);
  const feed = useFeed(
    `build of ${name}`,
    async ({ signal }) => ({ build: await findBuild(name, signal) }),
    1000,
    // Until the service knows of the build that was asked for, its last build is an older one, which has ended.
    ({ build }) => !isAwaited() && (build?.status === "built" || build?.status === "failed"),
  );
  const wasAsked = isAwaited();
  useEffect(() => feed.value.refresh(), [wasAsked]);
  // Below a long list it would not be seen.
  useEffect(
    () => section.current?.scrollIntoView({ block: "nearest" }),
    [Boolean(feed.value.data)],
  );
  const { data, problem } = feed.value;
  const { build } = data ?? {};
  const output = new Output();
  if (build) output.append("stdout", build.log);
  return (
    <section aria-label={`Build of ${name}`} ref={section}>
      <h2>Build of {name}</h2>
      <Problem text={problem ?? build?.error?.message} />
      {data && !build && <p class="quiet">It has not been built yet.</p>}
      {build && (
        <>
          <p class="summary">
            <Status status={build.status} />
            <StepOf build={build} />
            <span class="quiet">
              {build.image_ref}, <Age at={build.ended_at ?? build.created_at} />
            </span>
          </p>
          <OutputView
            label="Log of the build"
            fileName={`build-${name}.txt`}
            output={output}
            version={build.log.length}
            isLive={build.ended_at === null}
            empty="No output yet."
          />
        </>
      )}
    </section>
  );
}
