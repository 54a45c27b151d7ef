import { useSignal } from "@preact/signals";
import { NotFoundError } from "../../typescript/src/errors.ts";
import { addressOf } from "../model/address.ts";
import { Output } from "../model/output.ts";
import { announce, attempt } from "../parts/announce.ts";
import { Age, Heading, Problem, Status } from "../parts/common.tsx";
import { OutputView } from "../parts/output.tsx";
import { actions, number, Table, wide } from "../parts/table.tsx";
import { useFeed } from "../service/feed.ts";
import {
  type Build,
  getBuild,
  type JobType,
  listJobTypes,
  startBuild,
} from "../service/records.ts";

/** The environments that code can run in: whether their image is there, and its build. */
export function JobTypes() {
  const feed = useFeed("job types", listJobTypes);
  const shown = useSignal<string | undefined>(undefined);
  const { data, problem, refresh } = feed.value;
  const build = (name: string): void => {
    shown.value = name;
    void attempt(async () => {
      await startBuild(name);
      announce(`${name} is built`);
      refresh();
    });
  };
  return (
    <>
      <Heading title="Job types" />
      <Problem text={problem} />
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
              onBuild={build}
              onShow={(name) => (shown.value = name)}
            />
          ))}
        </Table>
      )}
      {shown.value && <BuildLog key={shown.value} name={shown.value} />}
    </>
  );
}

interface RowProps {
  type: JobType;
  onBuild: (name: string) => void;
  onShow: (name: string) => void;
}

function JobTypeRow({ type, onBuild, onShow }: RowProps) {
  const { name, requirements, image_exists: exists } = type;
  return (
    <tr>
      <td
        title={
          exists ? "A connected agent has the image" : "No connected agent has the image: build it"
        }
      >
        <Status status={exists ? "built" : "not built"} />
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
        {type.timeout} s
      </td>
      <td class="wide quiet" title={requirements.join(", ")}>
        {requirements.length === 0 ? "no packages of its own" : requirements.join(", ")}
      </td>
      <td class="row-actions">
        <button class="small" aria-label={`Last build of ${name}`} onClick={() => onShow(name)}>
          Last build
        </button>{" "}
        <button class="small" aria-label={`Build ${name}`} onClick={() => onBuild(name)}>
          Build
        </button>
      </td>
    </tr>
  );
}

async function lastBuild(name: string, signal: AbortSignal): Promise<Build | undefined> {
  try {
    return await getBuild(name, signal);
  } catch (error) {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  }
}

function BuildLog({ name }: { name: string }) {
  const feed = useFeed(
    `build of ${name}`,
    async (signal) => ({ build: await lastBuild(name, signal) }),
    ({ build }) => build?.status === "built" || build?.status === "failed",
    1000,
  );
  const { data, problem } = feed.value;
  const { build } = data ?? {};
  const output = new Output();
  if (build) output.append("stdout", build.log);
  return (
    <section aria-label={`Build of ${name}`}>
      <h2>Build of {name}</h2>
      <Problem text={problem ?? build?.error?.message} />
      {data && !build && <p class="quiet">It was not built yet.</p>}
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
            output={output}
            version={build.log.length}
            isLive={build.ended_at === null}
            text={() => build.log}
            empty="No output yet."
          />
        </>
      )}
    </section>
  );
}
