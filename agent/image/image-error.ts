/** The image cannot be sent or accepted as it is; the message says why. */
export class ImageArchiveError extends Error {
  override name = "ImageArchiveError";
}
