/** Where set-up stores the output of its commands; only root runs any. */
export const LOG_DIR = "/var/log/airlock";
