import { ownProfile } from "../container/own-profile.ts";

/** The volumes that the mothers of an agent read, and whose containers write in them. */
export interface VolumeSpec {
  /** Volume of the engine with the files of the images of jobs; mothers with the same ids share it. */
  readonly rootfs: string;
  /** Volume of the engine with the packages of this agent's jobs. */
  readonly bundles: string;
  readonly agentId: string;
  readonly agentName: string;
}

/** The create call of a container that writes in the volumes. */
export function unpackProfile(spec: VolumeSpec, image: string, leaseId: string) {
  return ownProfile(
    image,
    { ...spec, leaseId },
    {
      Binds: bindsOf(spec, ""),
      CapAdd: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT"],
      SecurityOpt: ["no-new-privileges"],
      PidsLimit: 16,
    },
  );
}

/** The create call of a container that is never started: the engine exports its files. */
export function sourceProfile(spec: VolumeSpec, image: string, leaseId: string) {
  return ownProfile(image, { ...spec, leaseId }, { SecurityOpt: ["no-new-privileges"] });
}

/** The volumes in a container, at /rootfs and /bundles. */
export const bindsOf = ({ rootfs, bundles }: VolumeSpec, mode: ":ro" | ""): string[] => [
  `${rootfs}:/rootfs${mode}`,
  `${bundles}:/bundles${mode}`,
];
