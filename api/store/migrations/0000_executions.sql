CREATE TABLE `agents` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_hash` text NOT NULL,
	`version` text NOT NULL,
	`labels` text NOT NULL,
	`slots` integer NOT NULL,
	`running` integer NOT NULL,
	`warm` integer NOT NULL,
	`engine` text NOT NULL,
	`breaker` text NOT NULL,
	`last_seen_at` integer NOT NULL
);
--> statement-breakpoint
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
CREATE TABLE `dead_letters` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`execution_id` text NOT NULL,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE UNIQUE INDEX `dead_letters_execution_id_unique` ON `dead_letters` (`execution_id`);--> statement-breakpoint
CREATE TABLE `executions` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`mode` text NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`job_type` text NOT NULL,
	`job_version` text DEFAULT 'latest' NOT NULL,
	`job_ref` text,
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
CREATE UNIQUE INDEX `executions_lease` ON `executions` (`lease_id`) WHERE "executions"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_expiry` ON `executions` (`lease_expires_at`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_holder` ON `executions` (`agent_id`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_status` ON `executions` (`status`,`seq`);--> statement-breakpoint
CREATE INDEX `executions_job_type` ON `executions` (`job_type`,`seq`);--> statement-breakpoint
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
