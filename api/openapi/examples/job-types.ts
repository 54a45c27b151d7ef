import type { Build, BuildResult } from "../../../shared/wire/build.ts";
import type { JobTypeView } from "../../../shared/wire/job-type.ts";
import { at } from "./jobs.ts";

const digest = "sha256:b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

export const jobType: JobTypeView = {
  name: "science",
  requirements: ["numpy==2.3.4"],
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

export const buildResult: BuildResult = {
  status: "built",
  job_type: "science",
  version: `science@${digest}`,
  digest,
  image_ref: "airlock-science:v1.2.3",
};

export const build: Build = {
  status: "running",
  job_type: "science",
  image_ref: "airlock-science:v1.2.3",
  version: null,
  digest: null,
  error: null,
  created_at: at("00.000"),
  started_at: at("00.010"),
  ended_at: null,
  log: "Collecting numpy==2.3.4\n",
};
