CREATE TABLE `batches` (
	`id` text PRIMARY KEY NOT NULL,
	`key_id` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`outcome` blob NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `batches_idempotency_key` ON `batches` (`key_id`,`idempotency_key`) WHERE "batches"."idempotency_key" IS NOT NULL;
--> statement-breakpoint
CREATE UNIQUE INDEX `batches_idempotency_key_open` ON `batches` (`idempotency_key`) WHERE "batches"."idempotency_key" IS NOT NULL AND "batches"."key_id" IS NULL;
--> statement-breakpoint
CREATE INDEX `batches_created_at` ON `batches` (`created_at`);
--> statement-breakpoint
CREATE TABLE `execution_metadata` (
	`key` text NOT NULL,
	`value` text NOT NULL,
	`seq` integer NOT NULL,
	PRIMARY KEY(`key`, `value`, `seq`)
);
--> statement-breakpoint
CREATE TABLE `tombstones` (
	`key_id` text NOT NULL,
	`idempotency_key` text NOT NULL,
	`execution_id` text NOT NULL,
	`removed_at` integer NOT NULL,
	PRIMARY KEY(`key_id`, `idempotency_key`)
);
--> statement-breakpoint
CREATE INDEX `tombstones_removed_at` ON `tombstones` (`removed_at`);
--> statement-breakpoint
CREATE TABLE `settings` (
	`name` text PRIMARY KEY NOT NULL,
	`value` text NOT NULL
);
--> statement-breakpoint
DROP INDEX `executions_idempotency_key`;
--> statement-breakpoint
ALTER TABLE `executions` ADD `metadata` text;
--> statement-breakpoint
ALTER TABLE `executions` ADD `batch_id` text;
--> statement-breakpoint
ALTER TABLE `executions` ADD `max_attempts` integer DEFAULT 2 NOT NULL;
--> statement-breakpoint
ALTER TABLE `executions` ADD `run_at` integer;
--> statement-breakpoint
ALTER TABLE `executions` ADD `start_by` integer;
--> statement-breakpoint
ALTER TABLE `executions` ADD `traceparent` text;
--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key_open` ON `executions` (`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL AND "executions"."key_id" IS NULL;
--> statement-breakpoint
CREATE INDEX `executions_parent` ON `executions` (`parent_execution_id`,`seq`) WHERE "executions"."parent_execution_id" IS NOT NULL;
--> statement-breakpoint
CREATE INDEX `executions_batch` ON `executions` (`batch_id`,`seq`) WHERE "executions"."batch_id" IS NOT NULL;
--> statement-breakpoint
CREATE INDEX `executions_start_by` ON `executions` (`start_by`) WHERE "executions"."status" = 'queued' AND "executions"."start_by" IS NOT NULL;
--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key` ON `executions` (`key_id`,`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL;
--> statement-breakpoint
ALTER TABLE `payloads` ADD `stdin` blob;
--> statement-breakpoint
ALTER TABLE `payloads` ADD `args` text;
--> statement-breakpoint
ALTER TABLE `executions` ADD `container_backend` text;
--> statement-breakpoint
CREATE TABLE `files` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`sha256` text NOT NULL,
	`content_type` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `files_expires_at` ON `files` (`expires_at`);
--> statement-breakpoint
CREATE TABLE `input_files` (
	`execution_id` text NOT NULL,
	`name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`sha256` text NOT NULL,
	`content_type` text NOT NULL,
	`content` blob,
	`store_key` text,
	`owner` text,
	PRIMARY KEY(`execution_id`, `name`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade,
	CONSTRAINT "bytes_once" CHECK(("input_files"."content" IS NULL) <> ("input_files"."store_key" IS NULL)),
	CONSTRAINT "owner_of_stored" CHECK(("input_files"."owner" IS NULL) = ("input_files"."store_key" IS NULL))
);
--> statement-breakpoint
CREATE INDEX `input_files_owner` ON `input_files` (`owner`) WHERE "input_files"."owner" IS NOT NULL;
--> statement-breakpoint
ALTER TABLE `executions` ADD `inputs` text;
--> statement-breakpoint
ALTER TABLE `agents` ADD `draining_at` integer;
--> statement-breakpoint
CREATE TABLE `minutes` (
	`at` integer PRIMARY KEY NOT NULL,
	`pending` integer NOT NULL,
	`running` integer NOT NULL,
	`slots` integer NOT NULL,
	`ended` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `webhook_deliveries` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`event_seq` integer NOT NULL,
	`execution_id` text NOT NULL,
	`receiver` text NOT NULL,
	`callback_url` text,
	`status` text DEFAULT 'pending' NOT NULL,
	`tries` integer DEFAULT 0 NOT NULL,
	`attempts` integer DEFAULT 0 NOT NULL,
	`due_at` integer NOT NULL,
	`claimed_until` integer,
	`last_status_code` integer,
	`last_error` text,
	`created_at` integer NOT NULL,
	`changed_at` integer NOT NULL,
	`ended_at` integer,
	FOREIGN KEY (`event_seq`) REFERENCES `webhook_events`(`seq`) ON UPDATE no action ON DELETE cascade,
	CONSTRAINT "delivery_status_known" CHECK("webhook_deliveries"."status" IN ('pending', 'delivered', 'failed')),
	CONSTRAINT "delivery_ended" CHECK(("webhook_deliveries"."status" = 'pending') = ("webhook_deliveries"."ended_at" IS NULL))
);
--> statement-breakpoint
CREATE UNIQUE INDEX `webhook_deliveries_receiver` ON `webhook_deliveries` (`event_seq`,`receiver`);
--> statement-breakpoint
CREATE INDEX `webhook_deliveries_due` ON `webhook_deliveries` (`receiver`,`due_at`) WHERE "webhook_deliveries"."status" = 'pending';
--> statement-breakpoint
CREATE INDEX `webhook_deliveries_execution` ON `webhook_deliveries` (`execution_id`);
--> statement-breakpoint
CREATE INDEX `webhook_deliveries_status` ON `webhook_deliveries` (`status`,`id`);
--> statement-breakpoint
CREATE INDEX `webhook_deliveries_changed_at` ON `webhook_deliveries` (`changed_at`);
--> statement-breakpoint
CREATE TABLE `webhook_events` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`execution_id` text NOT NULL,
	`type` text NOT NULL,
	`data` text NOT NULL,
	`callback_url` text,
	`created_at` integer NOT NULL,
	`is_fanned_out` integer DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `webhook_events_execution_id_unique` ON `webhook_events` (`execution_id`);
--> statement-breakpoint
CREATE INDEX `webhook_events_new` ON `webhook_events` (`seq`) WHERE "webhook_events"."is_fanned_out" = 0;
--> statement-breakpoint
CREATE INDEX `webhook_events_created_at` ON `webhook_events` (`created_at`);
--> statement-breakpoint
ALTER TABLE `executions` ADD `callback_url` text;
--> statement-breakpoint
CREATE TABLE `output_chunks` (
	`execution_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`position` integer NOT NULL,
	`stdout_offset` integer NOT NULL,
	`stderr_offset` integer NOT NULL,
	`runs` text NOT NULL,
	`at` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`execution_id`, `attempt`, `position`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
ALTER TABLE `executions` ADD `watched_until` integer;
--> statement-breakpoint
INSERT INTO `output_chunks` (`execution_id`, `attempt`, `position`, `stdout_offset`, `stderr_offset`, `runs`, `at`, `data`)
SELECT c.execution_id, e.attempt,
  c.offset + iif(c.stream = 'stderr', w.stdout_bytes, 0),
  iif(c.stream = 'stderr', w.stdout_bytes, c.offset),
  iif(c.stream = 'stderr', c.offset, 0),
  json_array(iif(c.stream = 'stderr', -length(c.data), length(c.data))),
  coalesce(e.ended_at, e.started_at), c.data
FROM log_chunks c
JOIN executions e ON e.id = c.execution_id AND e.lease_id = c.lease_id
JOIN (SELECT execution_id, lease_id, sum(iif(stream = 'stdout', length(data), 0)) AS stdout_bytes
  FROM log_chunks GROUP BY 1, 2) w ON w.execution_id = c.execution_id AND w.lease_id = c.lease_id;
--> statement-breakpoint
DROP TABLE `log_chunks`;
--> statement-breakpoint
ALTER TABLE `files` ADD `upload_key` text;
--> statement-breakpoint
CREATE UNIQUE INDEX `files_upload_key` ON `files` (`upload_key`) WHERE "files"."upload_key" IS NOT NULL;
--> statement-breakpoint
CREATE INDEX `webhook_deliveries_endpoint` ON `webhook_deliveries` (`receiver`,`id`);
--> statement-breakpoint
ALTER TABLE `agent_tokens` ADD `rotation_asked_at` integer;
--> statement-breakpoint
CREATE TABLE `file_bytes` (
	`id` integer PRIMARY KEY NOT NULL,
	`total` integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE `removals` ADD `file_bytes` integer DEFAULT 0 NOT NULL;
--> statement-breakpoint
ALTER TABLE `executions` ADD `lost_attempts` text;
--> statement-breakpoint
ALTER TABLE `executions` ADD `warnings` text;
