import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { NotFoundError } from "../../typescript/src/errors.ts";
import { addressOf } from "../model/address.ts";
import { formatDuration } from "../model/numbers.ts";
import { Output } from "../model/output.ts";
import {
  Age,
  announce,
  attempt,
  Heading,
  Loading,
  Problem,
  ScopedButton,
  Status,
} from "../parts/elements.tsx";
import { OutputView } from "../parts/output.tsx";
import { actions, number, Table, wide } from "../parts/table.tsx";
import { hasScope } from "../service/client.ts";
import { useFeed } from "../service/feed.ts";
import { go } from "../service/location.ts";
import {
  type Build,
  getBuild,
  type JobType,
  listJobTypes,
  startBuild,
} from "../service/records.ts";

/** Job types without an image whose last build is asked for: one request each, within the rate limit of the service. */
const asked = 8;
const askedMs = 60_000;

/** Shows the last build of a job type, below the list. */
const show = (name: string): void => go(addressOf("job-types", { build: name }), { replace: true });

/** The environments that code can run in: whether their image is there, and its build. */
export function JobTypes({ query }: { query: URLSearchParams }) {
  const feed = useFeed("job types", listJobTypes);
  /** Names of the job types whose build was asked for here, and has not ended. */
  const awaited = useSignal<readonly string[]>([]);
  const { data, problem, refresh } = feed.value;
  const unbuilt = (data ?? []).filter((type) => !type.image_exists).map(({ name }) => name);
  const missing = hasScope("build") ? unbuilt : [];
  const lastBuilds = useFeed(
    `last builds of ${missing.slice(0, asked).join(" ")}`,
    (signal) => loadStates(missing.slice(0, asked), signal),
    undefined,
    askedMs,
  );
  const shown = query.get("build");
  const build = async (name: string): Promise<void> => {
    awaited.value = [...awaited.value, name];
    show(name);
    try {
      await startBuild(name);
      announce(`${name} is built`);
      refresh();
    } finally {
      awaited.value = awaited.value.filter((other) => other !== name);
      lastBuilds.value.refresh();
    }
  };
  return (
    <>
      <Heading title="Job types" />
      <Problem text={problem} />
      <Loading feed={feed.value} />
      {data && (
        <Table
          columns={[
            "Image",
            "Job type",
            "Python",
            number("Memory"),
            number("CPUs"),
            number("Time limit"),
            wide("Packages"),
            actions,
          ]}
        >
          {data.map((type) => (
            <JobTypeRow
              key={type.name}
              type={type}
              lastBuild={
                awaited.value.includes(type.name) ? "running" : lastBuilds.value.data?.[type.name]
              }
              onBuild={(name) => void attempt(() => build(name))}
              onShow={show}
            />
          ))}
        </Table>
      )}
      {shown && <BuildLog key={shown} name={shown} awaited={awaited} />}
    </>
  );
}

interface RowProps {
  type: JobType;
  /** State of its last build, as far as it is known. */
  lastBuild: Build["status"] | undefined;
  onBuild: (name: string) => void;
  onShow: (name: string) => void;
}

function JobTypeRow({ type, lastBuild, onBuild, onShow }: RowProps) {
  const { name, requirements, image_exists: exists } = type;
  return (
    <tr>
      <td
        title={
          exists ? "A connected agent has the image" : "No connected agent has the image: build it"
        }
      >
        <Status status={imageState(exists, lastBuild)} />
      </td>
      <td>
        <a href={addressOf("executions", { job_type: name })}>{name}</a>
      </td>
      <td class="number-left" data-name="Python">
        {type.python_version}
      </td>
      <td class="number" data-name="memory">
        {type.memory_limit}
      </td>
      <td class="number" data-name="CPUs">
        {type.cpu_limit}
      </td>
      <td class="number" data-name="time limit">
        {formatDuration(type.timeout * 1000)}
      </td>
      <td class="wide quiet" title={requirements.join(", ")}>
        {requirements.length === 0 ? "no packages of its own" : requirements.join(", ")}
      </td>
      <td class="row-actions">
        <ScopedButton
          scope="build"
          class="small"
          aria-label={`Last build of ${name}`}
          onClick={() => onShow(name)}
        >
          Last build
        </ScopedButton>{" "}
        <ScopedButton
          scope="build"
          class="small"
          aria-label={`Build ${name}`}
          onClick={() => onBuild(name)}
        >
          Build
        </ScopedButton>
      </td>
    </tr>
  );
}

function imageState(exists: boolean, last: Build["status"] | undefined): string {
  if (last === "running" || last === "queued") return "building";
  if (exists) return "built";
  return last === "failed" ? "build failed" : "not built";
}

/** States of the last builds of some job types, by name. */
async function loadStates(
  names: string[],
  signal: AbortSignal,
): Promise<Record<string, Build["status"] | undefined>> {
  const builds = names.map(async (name) => [name, (await findBuild(name, signal))?.status]);
  return Object.fromEntries(await Promise.all(builds)) as Record<string, Build["status"]>;
}

async function findBuild(name: string, signal: AbortSignal): Promise<Build | undefined> {
  try {
    return await getBuild(name, signal);
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
    async (signal) => ({ build: await findBuild(name, signal) }),
    // Until the service knows of the build that was asked for, its last build is an older one, which has ended.
    ({ build }) => !isAwaited() && (build?.status === "built" || build?.status === "failed"),
    1000,
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
