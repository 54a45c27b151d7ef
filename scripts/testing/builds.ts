import type { Build, BuildResult } from "../../shared/wire/build.ts";
import type { JobTypeView } from "../../shared/wire/job-type.ts";
import type { TestService } from "./test-service.ts";

/** An agent's settings for PyPI, also where a proxy of this machine's has a private address and its own certificates. */
export const fromPypi = {
  AIRLOCK_PIP_HOSTS: "pypi.org,files.pythonhosted.org",
  AIRLOCK_PIP_CA_FILE: process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt",
};

/** Builds the image of a job type; the answer is that of the API, which may be a refusal. */
export async function build(
  service: TestService,
  jobType: string,
  tag?: string,
): Promise<BuildResult> {
  const query = tag === undefined ? "" : `?version_tag=${tag}`;
  return (await service.send<BuildResult>("POST", `/job-types/${jobType}/build${query}`)).json;
}

export async function lastBuild(service: TestService, jobType: string): Promise<Build> {
  return (await service.send<Build>("GET", `/job-types/${jobType}/build`)).json;
}

export async function readJobType(service: TestService, jobType: string): Promise<JobTypeView> {
  return (await service.send<JobTypeView>("GET", `/job-types/${jobType}`)).json;
}
