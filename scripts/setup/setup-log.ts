/** Where set-up keeps the output of what it runs; only root gets as far as writing there. */
export const LOG_DIR = "/var/log/airlock";
