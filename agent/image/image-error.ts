/** The image cannot be passed on, or taken in, as it is; the message tells why. */
export class ImageArchiveError extends Error {
  override name = "ImageArchiveError";
}
