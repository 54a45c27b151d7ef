import { expect, test } from "vitest";
import { containerProfile } from "../container/container-profile.ts";
import { specWith } from "../sandbox/testing/report.ts";
import { motherProfile } from "../fork/mother-profile.ts";
import { forPodman } from "./podman.ts";

const mother = motherProfile(
  {
    rootfs: "rootfs",
    bundles: "bundles",
    agentId: "id",
    agentName: "name",
    slots: 1,
    memoryBytes: null,
    pids: 100,
  },
  "image",
  "lease",
);

test("what Podman would add to a read-only container is closed", () => {
  const profile = forPodman(containerProfile(specWith()));
  expect(profile.HostConfig.Tmpfs).toMatchObject({
    "/var/tmp": "ro,nosuid,nodev,noexec",
    "/run/lock": "ro,nosuid,nodev,noexec",
  });
});

test("a mother sees the whole /proc; the container of a job never", () => {
  expect(forPodman(mother).HostConfig.SecurityOpt).toContain("unmask=ALL");
  const { SecurityOpt } = forPodman(containerProfile(specWith())).HostConfig;
  expect(SecurityOpt).not.toContain("unmask=ALL");
});
