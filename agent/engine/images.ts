import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type Docker from "dockerode";
import { EngineError } from "../sandbox/sandbox.ts";
import { abortable } from "../waiting.ts";

/** User and password for a registry. */
export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
}

/** An image that has a name. */
export interface NamedImage {
  /** `sha256:…` */
  readonly id: string;
  /** Unpacked size, including layers that other images share. */
  readonly sizeBytes: number;
  /** When the image was made; epoch ms. */
  readonly createdMs: number;
}

/** An image with or without a name, and what the engine knows of it. */
export interface ImageEntry extends NamedImage {
  /** The image that it was committed from on this engine; empty if it came from elsewhere. */
  readonly parentId: string;
  readonly names: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

/** What an engine does with images. Every method throws EngineError, or its signal's reason on abort. */
export interface ImageCalls {
  /** The id of an image, or null if there is none. */
  imageId(reference: string, signal: AbortSignal): Promise<string | null>;
  /** The id of an image, its tags and its registry digests; empty if there is no such image. */
  imageNames(reference: string, signal: AbortSignal): Promise<string[]>;
  /**
   * The id of the oldest image with one layer and the label `name=value`, or null. Images built
   * from it inherit the label, so those do not count.
   */
  labelledImageId(name: string, value: string, signal: AbortSignal): Promise<string | null>;
  /** All images, also those that others are made of; with a label `name=value`, those that have it. */
  imageList(signal: AbortSignal, label?: string): Promise<ImageEntry[]>;
  /** The engine's images that have a name in this repository. */
  imagesNamed(repository: string, signal: AbortSignal): Promise<NamedImage[]>;
  /**
   * The processor architecture of an image, such as "amd64"; null if there is no such image or it
   * does not say.
   */
  imageArchitecture(reference: string, signal: AbortSignal): Promise<string | null>;
  /** The environment that an image sets: lines `NAME=value`. */
  imageEnvironment(reference: string, signal: AbortSignal): Promise<string[]>;
  /** The engine's processor architecture, in the same form. */
  architecture(signal: AbortSignal): Promise<string>;
  /** Makes an image of a container, applies Dockerfile instructions, and returns the image's id. */
  commit(
    id: string,
    repository: string,
    tag: string,
    changes: string[],
    signal: AbortSignal,
  ): Promise<string>;
  tag(imageId: string, repository: string, tag: string, signal: AbortSignal): Promise<void>;
  /** Removes a name, and the image with its last name; it is no error if there is none. */
  removeName(reference: string, signal: AbortSignal): Promise<void>;
  pull(reference: string, signal: AbortSignal, auth?: RegistryAuth): Promise<void>;
  /** Returns the digest of the image's manifest in the registry, `sha256:…`. */
  push(repository: string, tag: string, signal: AbortSignal, auth?: RegistryAuth): Promise<string>;
  /** The image as a tar in the engine's format, see `packImage` in agent/images/archive.ts. */
  save(imageId: string, signal: AbortSignal): Promise<Readable>;
  /** Loads a tar in the format of `save`; a truncated tar leaves nothing. */
  load(tar: Readable, signal: AbortSignal): Promise<void>;
}

/** Makes one request to the engine with a signal of its own, and throws EngineError. */
export type Call = <T>(
  signal: AbortSignal,
  request: (abortSignal: AbortSignal) => Promise<T>,
) => Promise<T>;

export function imageCalls(docker: Docker, call: Call): ImageCalls {
  const inspect = (reference: string, signal: AbortSignal) =>
    call(signal, async (abortSignal) => {
      try {
        return await abortable(docker.getImage(reference).inspect(), abortSignal);
      } catch (error) {
        if ((error as { statusCode?: number }).statusCode === 404) return null;
        throw error;
      }
    });

  return {
    imageId: async (reference, signal) => (await inspect(reference, signal))?.Id ?? null,
    imageNames: async (reference, signal) => {
      const image = await inspect(reference, signal);
      // Some engines say null for an image without a name.
      return image ? [image.Id, image.RepoTags ?? [], image.RepoDigests ?? []].flat() : [];
    },
    labelledImageId: async (name, value, signal) => {
      const filters = { label: [`${name}=${value}`] };
      const found = await call(signal, (abortSignal) =>
        docker.listImages({ filters, abortSignal }),
      );
      const images = await Promise.all(found.map(({ Id }) => inspect(Id, signal)));
      const [oldest] = images
        .filter((image) => image?.RootFS.Layers?.length === 1)
        .sort((one, other) => Date.parse(one!.Created) - Date.parse(other!.Created));
      return oldest?.Id ?? null;
    },
    imageList: (signal, label) =>
      call(signal, async (abortSignal) => {
        const filters = label === undefined ? {} : { label: [label] };
        const images = await docker.listImages({ all: true, filters, abortSignal });
        return images.map(({ ParentId, Labels, RepoTags, RepoDigests, ...image }) => ({
          ...named(image),
          parentId: ParentId ? fullId(ParentId) : "",
          labels: Labels ?? {},
          names: [RepoTags ?? [], RepoDigests ?? []]
            .flat()
            .filter((one) => !one.includes("<none>")),
        }));
      }),
    imagesNamed: (repository, signal) =>
      call(signal, async (abortSignal) => {
        // Podman's names begin with a host.
        const filters = { reference: [repository, `localhost/${repository}`] };
        return (await docker.listImages({ filters, abortSignal })).map(named);
      }),
    imageEnvironment: async (reference, signal) => {
      const found = await inspect(reference, signal);
      if (found === null)
        throw new EngineError("image_not_found", `there is no image ${reference}`);
      return found.Config.Env ?? [];
    },
    imageArchitecture: async (reference, signal) =>
      (await inspect(reference, signal))?.Architecture || null,
    architecture: (signal) =>
      call(signal, async (abortSignal) => (await abortable(docker.version(), abortSignal)).Arch),
    commit: (id, repository, tag, changes, signal) =>
      call(signal, async (abortSignal) => {
        const request = { repo: repository, tag, changes, abortSignal };
        const { Id } = (await docker.getContainer(id).commit(request)) as { Id: string };
        return fullId(Id);
      }),
    tag: (imageId, repository, tag, signal) =>
      call(signal, async (abortSignal) => {
        await docker.getImage(imageId).tag({ repo: repository, tag, abortSignal });
      }),
    removeName: (reference, signal) =>
      call(signal, async (abortSignal) => {
        // An image without a name may be one that jobs run on.
        const removal = docker.getImage(reference).remove({ noprune: true, abortSignal });
        await removal.catch((error: unknown) => {
          if ((error as { statusCode?: number }).statusCode !== 404) throw error;
        });
      }),
    pull: (reference, signal, auth) =>
      call(signal, async (abortSignal) => {
        const options = { abortSignal, ...(auth && { authconfig: auth }) };
        await words((await docker.pull(reference, options)) as Readable, "image_not_found");
      }),
    push: (repository, tag, signal, auth) =>
      call(signal, async (abortSignal) => {
        // Docker requires the authentication header, even if it is empty.
        const options = { tag, authconfig: auth ?? {}, abortSignal };
        const said = await words(
          (await docker.getImage(repository).push(options as Docker.ImagePushOptions)) as Readable,
          "other",
        );
        const digest = said.map(({ aux }) => aux?.Digest).findLast((one) => one !== undefined);
        if (digest === undefined)
          throw new EngineError("other", "the engine reported no digest for the push");
        return digest;
      }),
    save: (imageId, signal) =>
      call(signal, async (abortSignal) => {
        const image = docker.getImage(imageId);
        const tar = (await abortable(image.get(), abortSignal)) as Readable;
        const giveUp = (): void => void tar.destroy(signal.reason as Error);
        signal.addEventListener("abort", giveUp);
        tar.once("close", () => signal.removeEventListener("abort", giveUp));
        return tar;
      }),
    load: (tar, signal) =>
      call(signal, async (abortSignal) => {
        const options = { quiet: true, abortSignal };
        await words((await docker.loadImage(tar, options)) as Readable, "other");
      }),
  };
}

const named = ({ Id, Size, Created }: Pick<Docker.ImageInfo, "Id" | "Size" | "Created">) => ({
  id: fullId(Id),
  sizeBytes: Size,
  createdMs: Created * 1000,
});

/** Podman leaves out the algorithm. */
function fullId(id: string): string {
  return id.startsWith("sha256:") ? id : `sha256:${id}`;
}

interface Line {
  readonly error?: string;
  readonly aux?: { readonly Digest?: string };
}

/**
 * Reads an engine's progress report, one JSON object per line, and throws the failure that it
 * reports.
 */
async function words(progress: Readable, code: "image_not_found" | "other"): Promise<Line[]> {
  const said: Line[] = [];
  for await (const line of createInterface({ input: progress })) {
    if (line.trim() === "") continue;
    const told = JSON.parse(line) as Line;
    if (told.error !== undefined) throw new EngineError(code, told.error);
    if (told.aux) said.push(told);
  }
  return said;
}
