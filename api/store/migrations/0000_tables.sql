CREATE TABLE `agent_tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_hash` text NOT NULL,
	`next_hash` text,
	`created_at` integer NOT NULL,
	`last_used_at` integer,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `agent_tokens_token_hash_unique` ON `agent_tokens` (`token_hash`);--> statement-breakpoint
CREATE UNIQUE INDEX `agent_tokens_next_hash_unique` ON `agent_tokens` (`next_hash`);--> statement-breakpoint
CREATE TABLE `agents` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_hash` text NOT NULL,
	`version` text NOT NULL,
	`labels` text NOT NULL,
	`accepts` text NOT NULL,
	`slots` integer NOT NULL,
	`gpus` text NOT NULL,
	`warm` integer NOT NULL,
	`pool` text NOT NULL,
	`engine` text NOT NULL,
	`breaker` text NOT NULL,
	`images` text NOT NULL,
	`last_seen_at` integer NOT NULL,
	`left_at` integer
);
--> statement-breakpoint
CREATE TABLE `join_codes` (
	`code_hash` text PRIMARY KEY NOT NULL,
	`name` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`token_id` text,
	FOREIGN KEY (`token_id`) REFERENCES `agent_tokens`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE TABLE `build_logs` (
	`build_id` text NOT NULL,
	`lease_id` text NOT NULL,
	`offset` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`build_id`, `lease_id`, `offset`),
	FOREIGN KEY (`build_id`) REFERENCES `builds`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `builds` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`job_type` text NOT NULL,
	`tag` text NOT NULL,
	`spec` text NOT NULL,
	`image_ref` text NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`correlation_id` text NOT NULL,
	`attempt` integer DEFAULT 0 NOT NULL,
	`lease_id` text,
	`agent_id` text,
	`lease_expires_at` integer,
	`created_at` integer NOT NULL,
	`started_at` integer,
	`ended_at` integer,
	`digest` text,
	`python_version` text,
	`archive_sha256` text,
	`archive_bytes` integer,
	`manifest_digest` text,
	`error` text,
	`report_hash` text,
	CONSTRAINT "build_status_known" CHECK("builds"."status" IN ('queued', 'running', 'built', 'failed')),
	CONSTRAINT "build_lease_while_running" CHECK(("builds"."status" = 'running') = ("builds"."lease_expires_at" IS NOT NULL)),
	CONSTRAINT "build_lease_complete" CHECK("builds"."lease_expires_at" IS NULL OR ("builds"."lease_id" IS NOT NULL AND "builds"."agent_id" IS NOT NULL AND "builds"."started_at" IS NOT NULL)),
	CONSTRAINT "build_ended" CHECK(("builds"."status" IN ('built', 'failed')) = ("builds"."ended_at" IS NOT NULL)),
	CONSTRAINT "build_error_when_failed" CHECK(("builds"."status" = 'failed') = ("builds"."error" IS NOT NULL)),
	CONSTRAINT "build_digest_when_built" CHECK(("builds"."status" = 'built') = ("builds"."digest" IS NOT NULL) AND ("builds"."status" = 'built') = ("builds"."python_version" IS NOT NULL))
);
--> statement-breakpoint
CREATE UNIQUE INDEX `builds_id_unique` ON `builds` (`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `builds_open` ON `builds` (`job_type`,`tag`,`spec`) WHERE "builds"."status" IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX `builds_queue` ON `builds` (`seq`) WHERE "builds"."status" IN ('queued', 'running');--> statement-breakpoint
CREATE UNIQUE INDEX `builds_lease` ON `builds` (`lease_id`) WHERE "builds"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `builds_built` ON `builds` (`job_type`,`spec`,`seq`) WHERE "builds"."status" = 'built';--> statement-breakpoint
CREATE INDEX `builds_archived` ON `builds` (`seq`) WHERE "builds"."archive_sha256" IS NOT NULL;--> statement-breakpoint
CREATE TABLE `artifacts` (
	`execution_id` text NOT NULL,
	`lease_id` text NOT NULL,
	`name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`sha256` text NOT NULL,
	`content_type` text NOT NULL,
	PRIMARY KEY(`execution_id`, `lease_id`, `name`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `executions` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`mode` text NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`job_type` text NOT NULL,
	`job_version` text DEFAULT 'latest' NOT NULL,
	`job_ref` text,
	`container_runtime` text,
	`timeout_s` integer NOT NULL,
	`startup_timeout_s` integer NOT NULL,
	`requirements` text NOT NULL,
	`attempt` integer DEFAULT 0 NOT NULL,
	`lease_id` text,
	`agent_id` text,
	`lease_expires_at` integer,
	`available_at` integer NOT NULL,
	`cancel_requested` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL,
	`started_at` integer,
	`code_started_at` integer,
	`ended_at` integer,
	`exit_code` integer,
	`error` text,
	`timing` text,
	`max_rss_mb` real,
	`cpu_time_ms` integer,
	`wall_time_ms` integer,
	`stdout_truncated` integer DEFAULT false NOT NULL,
	`stderr_truncated` integer DEFAULT false NOT NULL,
	`result_hash` text,
	`code_hash` text NOT NULL,
	`input_hash` text NOT NULL,
	`code_bytes` integer NOT NULL,
	`input_bytes` integer NOT NULL,
	`parent_execution_id` text,
	`relationship` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`correlation_id` text NOT NULL,
	`client_ip` text NOT NULL,
	`key_id` text,
	`turn` integer DEFAULT 0 NOT NULL,
	`place` integer DEFAULT 0 NOT NULL,
	CONSTRAINT "status_known" CHECK("executions"."status" IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'oom', 'cancelled')),
	CONSTRAINT "mode_known" CHECK("executions"."mode" IN ('sync', 'async')),
	CONSTRAINT "lease_while_running" CHECK(("executions"."status" = 'running') = ("executions"."lease_expires_at" IS NOT NULL)),
	CONSTRAINT "lease_complete" CHECK("executions"."lease_expires_at" IS NULL OR ("executions"."lease_id" IS NOT NULL AND "executions"."agent_id" IS NOT NULL AND "executions"."started_at" IS NOT NULL)),
	CONSTRAINT "ended_when_terminal" CHECK(("executions"."status" IN ('queued', 'running')) = ("executions"."ended_at" IS NULL)),
	CONSTRAINT "error_unless_succeeded" CHECK(("executions"."error" IS NOT NULL) = ("executions"."status" IN ('failed', 'timeout', 'oom', 'cancelled'))),
	CONSTRAINT "no_exit_code_on_timeout" CHECK("executions"."status" <> 'timeout' OR "executions"."exit_code" IS NULL),
	CONSTRAINT "attempt_not_negative" CHECK("executions"."attempt" >= 0),
	CONSTRAINT "lineage_complete" CHECK(("executions"."parent_execution_id" IS NULL) = ("executions"."relationship" IS NULL))
);
--> statement-breakpoint
CREATE UNIQUE INDEX `executions_id_unique` ON `executions` (`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key` ON `executions` (`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_queue` ON `executions` (`seq`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
CREATE INDEX `executions_position` ON `executions` (`place`,`seq`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
CREATE INDEX `executions_turn` ON `executions` (`key_id`,`turn`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
CREATE UNIQUE INDEX `executions_lease` ON `executions` (`lease_id`) WHERE "executions"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_expiry` ON `executions` (`lease_expires_at`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_holder` ON `executions` (`agent_id`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_status` ON `executions` (`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX `executions_job_type` ON `executions` (`job_type`,`seq`);--> statement-breakpoint
CREATE INDEX `executions_job_type_status` ON `executions` (`job_type`,`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX `executions_place` ON `executions` (`job_type`,`place`,`seq`) WHERE "executions"."status" = 'queued';--> statement-breakpoint
CREATE TABLE `log_chunks` (
	`execution_id` text NOT NULL,
	`lease_id` text NOT NULL,
	`stream` text NOT NULL,
	`offset` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`execution_id`, `lease_id`, `stream`, `offset`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `payloads` (
	`execution_id` text PRIMARY KEY NOT NULL,
	`code` blob NOT NULL,
	`input` blob NOT NULL,
	`stdout` blob,
	`stderr` blob,
	`output` blob,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `queue_fronts` (
	`job_type` text PRIMARY KEY NOT NULL,
	`turn` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `queue_length` (
	`id` integer PRIMARY KEY NOT NULL,
	`queued` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `counts` (
	`name` text NOT NULL,
	`job_type` text NOT NULL,
	`label` text NOT NULL,
	`n` integer NOT NULL,
	PRIMARY KEY(`name`, `job_type`, `label`)
);
--> statement-breakpoint
CREATE TABLE `dead_letters` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`execution_id` text NOT NULL,
	`error_type` text NOT NULL,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE UNIQUE INDEX `dead_letters_execution_id_unique` ON `dead_letters` (`execution_id`);--> statement-breakpoint
CREATE INDEX `dead_letters_error_type` ON `dead_letters` (`error_type`,`id`);--> statement-breakpoint
CREATE INDEX `dead_letters_created_at` ON `dead_letters` (`created_at`);--> statement-breakpoint
CREATE TABLE `durations` (
	`job_type` text NOT NULL,
	`phase` text NOT NULL,
	`le_ms` integer NOT NULL,
	`n` integer NOT NULL,
	`sum_ms` integer NOT NULL,
	PRIMARY KEY(`job_type`, `phase`, `le_ms`)
);
--> statement-breakpoint
CREATE TABLE `removals` (
	`prefix` text PRIMARY KEY NOT NULL,
	`due_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `removals_due` ON `removals` (`due_at`);--> statement-breakpoint
CREATE TABLE `rate_windows` (
	`client` text PRIMARY KEY NOT NULL,
	`hits` integer NOT NULL,
	`ends_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `rate_windows_end` ON `rate_windows` (`ends_at`);