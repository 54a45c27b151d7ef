import { z } from "zod";

export const MiB = 1024 * 1024;
/** A key or token, long enough not to be guessed. */
export const key16 = z.string().min(16, "must be at least 16 characters");
