CREATE TABLE `batches` (
	`id` text PRIMARY KEY NOT NULL,
	`key_id` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`outcome` blob NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `batches_idempotency_key` ON `batches` (`key_id`,`idempotency_key`) WHERE "batches"."idempotency_key" IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `batches_idempotency_key_open` ON `batches` (`idempotency_key`) WHERE "batches"."idempotency_key" IS NOT NULL AND "batches"."key_id" IS NULL;--> statement-breakpoint
CREATE INDEX `batches_created_at` ON `batches` (`created_at`);--> statement-breakpoint
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
CREATE INDEX `tombstones_removed_at` ON `tombstones` (`removed_at`);--> statement-breakpoint
CREATE TABLE `settings` (
	`name` text PRIMARY KEY NOT NULL,
	`value` text NOT NULL
);
--> statement-breakpoint
DROP INDEX `executions_idempotency_key`;--> statement-breakpoint
ALTER TABLE `executions` ADD `metadata` text;--> statement-breakpoint
ALTER TABLE `executions` ADD `batch_id` text;--> statement-breakpoint
ALTER TABLE `executions` ADD `max_attempts` integer DEFAULT 2 NOT NULL;--> statement-breakpoint
ALTER TABLE `executions` ADD `run_at` integer;--> statement-breakpoint
ALTER TABLE `executions` ADD `start_by` integer;--> statement-breakpoint
ALTER TABLE `executions` ADD `traceparent` text;--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key_open` ON `executions` (`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL AND "executions"."key_id" IS NULL;--> statement-breakpoint
CREATE INDEX `executions_parent` ON `executions` (`parent_execution_id`,`seq`) WHERE "executions"."parent_execution_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_batch` ON `executions` (`batch_id`,`seq`) WHERE "executions"."batch_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_start_by` ON `executions` (`start_by`) WHERE "executions"."status" = 'queued' AND "executions"."start_by" IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key` ON `executions` (`key_id`,`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL;--> statement-breakpoint
ALTER TABLE `payloads` ADD `stdin` blob;--> statement-breakpoint
ALTER TABLE `payloads` ADD `args` text;