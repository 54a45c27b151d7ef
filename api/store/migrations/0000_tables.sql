CREATE TABLE `agent_tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_hash` text NOT NULL,
	`next_hash` text,
	`created_at` integer NOT NULL,
	`last_used_at` integer,
	`revoked_at` integer,
	`rotation_asked_at` integer
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
	`max_sessions` integer,
	`images` text NOT NULL,
	`last_seen_at` integer NOT NULL,
	`draining_at` integer,
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
CREATE TABLE `batches` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`key_id` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`outcome` blob NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `batches_idempotency_key` ON `batches` (`tenant`,`idempotency_key`) WHERE "batches"."idempotency_key" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `batches_created_at` ON `batches` (`created_at`);--> statement-breakpoint
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
CREATE TABLE `execution_metadata` (
	`tenant` text DEFAULT 'default' NOT NULL,
	`key` text NOT NULL,
	`value` text NOT NULL,
	`seq` integer NOT NULL,
	PRIMARY KEY(`tenant`, `key`, `value`, `seq`)
);
--> statement-breakpoint
CREATE TABLE `executions` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`mode` text NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`job_type` text NOT NULL,
	`job_version` text DEFAULT 'latest' NOT NULL,
	`job_ref` text,
	`container_runtime` text,
	`container_backend` text,
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
	`submitted_bytes` integer DEFAULT 0 NOT NULL,
	`output_bytes` integer DEFAULT 0 NOT NULL,
	`parent_execution_id` text,
	`relationship` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`correlation_id` text NOT NULL,
	`client_ip` text NOT NULL,
	`key_id` text,
	`turn` integer DEFAULT 0 NOT NULL,
	`rank` integer DEFAULT 0 NOT NULL,
	`metadata` text,
	`batch_id` text,
	`max_attempts` integer DEFAULT 2 NOT NULL,
	`run_at` integer,
	`start_by` integer,
	`traceparent` text,
	`inputs` text,
	`callback_url` text,
	`followed_until` integer,
	`lost_attempts` text,
	`results` text,
	`session_id` text,
	`call` integer,
	`context` text,
	`kind` text,
	`warnings` text,
	CONSTRAINT "status_known" CHECK("executions"."status" IN ('queued', 'running', 'succeeded', 'failed', 'timeout', 'oom', 'cancelled')),
	CONSTRAINT "mode_known" CHECK("executions"."mode" IN ('sync', 'async')),
	CONSTRAINT "lease_while_running" CHECK(("executions"."status" = 'running') = ("executions"."lease_expires_at" IS NOT NULL)),
	CONSTRAINT "lease_complete" CHECK("executions"."lease_expires_at" IS NULL OR ("executions"."lease_id" IS NOT NULL AND "executions"."agent_id" IS NOT NULL AND "executions"."started_at" IS NOT NULL)),
	CONSTRAINT "ended_when_terminal" CHECK(("executions"."status" IN ('queued', 'running')) = ("executions"."ended_at" IS NULL)),
	CONSTRAINT "error_unless_succeeded" CHECK(("executions"."error" IS NOT NULL) = ("executions"."status" IN ('failed', 'timeout', 'oom', 'cancelled'))),
	CONSTRAINT "no_exit_code_on_timeout" CHECK("executions"."status" <> 'timeout' OR "executions"."exit_code" IS NULL),
	CONSTRAINT "attempt_not_negative" CHECK("executions"."attempt" >= 0),
	CONSTRAINT "call_complete" CHECK(("executions"."session_id" IS NULL) = ("executions"."call" IS NULL) AND ("executions"."session_id" IS NULL) = ("executions"."context" IS NULL)),
	CONSTRAINT "lineage_complete" CHECK(("executions"."parent_execution_id" IS NULL) = ("executions"."relationship" IS NULL))
);
--> statement-breakpoint
CREATE UNIQUE INDEX `executions_id_unique` ON `executions` (`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `executions_idempotency_key` ON `executions` (`tenant`,`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_tenant` ON `executions` (`tenant`,`seq`);--> statement-breakpoint
CREATE INDEX `executions_parent` ON `executions` (`parent_execution_id`,`seq`) WHERE "executions"."parent_execution_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_batch` ON `executions` (`batch_id`,`seq`) WHERE "executions"."batch_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_session` ON `executions` (`session_id`,`seq`) WHERE "executions"."session_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_waiting_call` ON `executions` (`session_id`,`seq`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `executions_running_call` ON `executions` (`session_id`) WHERE "executions"."status" = 'running' AND "executions"."session_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_start_by` ON `executions` (`start_by`) WHERE "executions"."status" = 'queued' AND "executions"."start_by" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_position` ON `executions` (`tenant`,`rank`,`seq`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NULL;--> statement-breakpoint
CREATE INDEX `executions_turn` ON `executions` (`tenant`,`turn`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `executions_lease` ON `executions` (`lease_id`) WHERE "executions"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `executions_expiry` ON `executions` (`lease_expires_at`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_holder` ON `executions` (`agent_id`,`session_id`) WHERE "executions"."status" = 'running';--> statement-breakpoint
CREATE INDEX `executions_status` ON `executions` (`tenant`,`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX `executions_job_type` ON `executions` (`tenant`,`job_type`,`seq`);--> statement-breakpoint
CREATE INDEX `executions_job_type_status` ON `executions` (`tenant`,`job_type`,`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');--> statement-breakpoint
CREATE INDEX `executions_rank` ON `executions` (`job_type`,`rank`,`seq`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NULL;--> statement-breakpoint
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
CREATE TABLE `run_items` (
	`execution_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`number` integer NOT NULL,
	`kind` text NOT NULL,
	`main` integer NOT NULL,
	`data` text NOT NULL,
	`stdout_at` integer NOT NULL,
	`stderr_at` integer NOT NULL,
	`at` integer NOT NULL,
	`answered` integer,
	`answer` text,
	`is_error` integer,
	PRIMARY KEY(`execution_id`, `attempt`, `number`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `payloads` (
	`execution_id` text PRIMARY KEY NOT NULL,
	`args` text,
	`program` text,
	`tools` text,
	`call` text,
	`compile` text,
	`stdout` blob,
	`stderr` blob,
	`output` blob,
	`stdin` blob,
	`code` blob NOT NULL,
	`input` blob NOT NULL,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE TABLE `file_bytes` (
	`id` integer PRIMARY KEY NOT NULL,
	`total` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `files` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`sha256` text NOT NULL,
	`content_type` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`upload_key` text
);
--> statement-breakpoint
CREATE INDEX `files_tenant` ON `files` (`tenant`,`id`);--> statement-breakpoint
CREATE INDEX `files_expires_at` ON `files` (`expires_at`);--> statement-breakpoint
CREATE UNIQUE INDEX `files_upload_key` ON `files` (`tenant`,`upload_key`) WHERE "files"."upload_key" IS NOT NULL;--> statement-breakpoint
CREATE TABLE `input_files` (
	`execution_id` text NOT NULL,
	`name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`sha256` text NOT NULL,
	`content_type` text NOT NULL,
	`content` blob,
	`store_key` text,
	`owner` text,
	`to_work` integer DEFAULT false NOT NULL,
	PRIMARY KEY(`execution_id`, `name`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade,
	CONSTRAINT "bytes_once" CHECK(("input_files"."content" IS NULL) <> ("input_files"."store_key" IS NULL)),
	CONSTRAINT "owner_of_stored" CHECK(("input_files"."owner" IS NULL) = ("input_files"."store_key" IS NULL))
);
--> statement-breakpoint
CREATE INDEX `input_files_owner` ON `input_files` (`owner`) WHERE "input_files"."owner" IS NOT NULL;--> statement-breakpoint
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
	`tenant` text DEFAULT 'default' NOT NULL,
	`execution_id` text NOT NULL,
	`error_type` text NOT NULL,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
--> statement-breakpoint
CREATE UNIQUE INDEX `dead_letters_execution_id_unique` ON `dead_letters` (`execution_id`);--> statement-breakpoint
CREATE INDEX `dead_letters_tenant` ON `dead_letters` (`tenant`,`id`);--> statement-breakpoint
CREATE INDEX `dead_letters_error_type` ON `dead_letters` (`tenant`,`error_type`,`id`);--> statement-breakpoint
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
CREATE TABLE `minutes` (
	`at` integer PRIMARY KEY NOT NULL,
	`pending` integer NOT NULL,
	`running` integer NOT NULL,
	`slots` integer NOT NULL,
	`ended` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `removals` (
	`prefix` text PRIMARY KEY NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`due_at` integer NOT NULL,
	`file_bytes` integer DEFAULT 0 NOT NULL,
	`artifact_bytes` integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE INDEX `removals_due` ON `removals` (`due_at`);--> statement-breakpoint
CREATE TABLE `tombstones` (
	`tenant` text DEFAULT 'default' NOT NULL,
	`idempotency_key` text NOT NULL,
	`execution_id` text NOT NULL,
	`removed_at` integer NOT NULL,
	PRIMARY KEY(`tenant`, `idempotency_key`)
);
--> statement-breakpoint
CREATE INDEX `tombstones_removed_at` ON `tombstones` (`removed_at`);--> statement-breakpoint
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
CREATE TABLE `rate_windows` (
	`client` text PRIMARY KEY NOT NULL,
	`hits` integer NOT NULL,
	`ends_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `rate_windows_end` ON `rate_windows` (`ends_at`);--> statement-breakpoint
CREATE TABLE `sessions` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`reason` text,
	`error` text,
	`job_type` text NOT NULL,
	`job_version` text DEFAULT 'latest' NOT NULL,
	`job_ref` text,
	`requirements` text NOT NULL,
	`startup_timeout_s` integer NOT NULL,
	`env` text,
	`contexts` text DEFAULT '[]' NOT NULL,
	`calls` integer DEFAULT 0 NOT NULL,
	`attempt` integer DEFAULT 0 NOT NULL,
	`lease_id` text,
	`agent_id` text,
	`lease_expires_at` integer,
	`container_runtime` text,
	`container_backend` text,
	`python_version` text,
	`created_at` integer NOT NULL,
	`started_at` integer,
	`ready_at` integer,
	`used_at` integer,
	`ended_at` integer,
	`expires_at` integer NOT NULL,
	`idle_timeout_s` integer,
	`metadata` text,
	`idempotency_key` text,
	`submission_hash` text NOT NULL,
	`key_id` text,
	`correlation_id` text NOT NULL,
	`client_ip` text NOT NULL,
	`traceparent` text,
	CONSTRAINT "session_status_known" CHECK("sessions"."status" IN ('queued', 'starting', 'ready', 'ended')),
	CONSTRAINT "session_reason_when_ended" CHECK(("sessions"."status" = 'ended') = (coalesce("sessions"."reason", '') IN ('deleted', 'idle', 'lifetime', 'agent_lost', 'agent_stopped', 'out_of_memory', 'engine_lost', 'start_failed'))),
	CONSTRAINT "session_ended" CHECK(("sessions"."status" = 'ended') = ("sessions"."ended_at" IS NOT NULL)),
	CONSTRAINT "session_env_until_end" CHECK(("sessions"."status" = 'ended') = ("sessions"."env" IS NULL)),
	CONSTRAINT "session_lease_while_held" CHECK(("sessions"."status" IN ('starting', 'ready')) = ("sessions"."lease_expires_at" IS NOT NULL)),
	CONSTRAINT "session_lease_complete" CHECK("sessions"."lease_expires_at" IS NULL OR ("sessions"."lease_id" IS NOT NULL AND "sessions"."agent_id" IS NOT NULL AND "sessions"."started_at" IS NOT NULL)),
	CONSTRAINT "session_ready" CHECK("sessions"."status" <> 'ready' OR "sessions"."ready_at" IS NOT NULL)
);
--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_id_unique` ON `sessions` (`id`);--> statement-breakpoint
CREATE INDEX `sessions_tenant` ON `sessions` (`tenant`,`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_idempotency_key` ON `sessions` (`tenant`,`idempotency_key`) WHERE "sessions"."idempotency_key" IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX `sessions_lease` ON `sessions` (`lease_id`) WHERE "sessions"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `sessions_open` ON `sessions` (`tenant`) WHERE "sessions"."status" <> 'ended';--> statement-breakpoint
CREATE INDEX `sessions_queue` ON `sessions` (`tenant`,`seq`) WHERE "sessions"."status" = 'queued';--> statement-breakpoint
CREATE INDEX `sessions_holder` ON `sessions` (`agent_id`) WHERE "sessions"."status" IN ('starting', 'ready');--> statement-breakpoint
CREATE INDEX `sessions_ended_at` ON `sessions` (`ended_at`) WHERE "sessions"."status" = 'ended';--> statement-breakpoint
CREATE TABLE `settings` (
	`name` text PRIMARY KEY NOT NULL,
	`value` text NOT NULL
);
--> statement-breakpoint
CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`tenant` text NOT NULL,
	`name` text NOT NULL,
	`key_hash` text NOT NULL,
	`scopes` text NOT NULL,
	`created_at` integer NOT NULL,
	`created_by` text,
	`expires_at` integer,
	`revoked_at` integer,
	`last_used_at` integer,
	FOREIGN KEY (`tenant`) REFERENCES `tenants`(`name`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_key_hash_unique` ON `api_keys` (`key_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_tenant` ON `api_keys` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `former_keys` (
	`hash` text PRIMARY KEY NOT NULL,
	`key_id` text NOT NULL,
	`until` integer NOT NULL,
	FOREIGN KEY (`key_id`) REFERENCES `api_keys`(`id`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE INDEX `former_keys_key` ON `former_keys` (`key_id`,`until`);--> statement-breakpoint
CREATE TABLE `audit` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`at` integer NOT NULL,
	`key_id` text,
	`key_name` text NOT NULL,
	`tenant` text NOT NULL,
	`action` text NOT NULL,
	`target` text NOT NULL,
	`detail` text,
	`correlation_id` text NOT NULL,
	`client_ip` text
);
--> statement-breakpoint
CREATE INDEX `audit_at` ON `audit` (`at`);--> statement-breakpoint
CREATE INDEX `audit_action` ON `audit` (`action`,`id`);--> statement-breakpoint
CREATE INDEX `audit_tenant` ON `audit` (`tenant`,`id`);--> statement-breakpoint
CREATE TABLE `tenants` (
	`name` text PRIMARY KEY NOT NULL,
	`created_at` integer NOT NULL,
	`listening_until` integer,
	`used_day` integer DEFAULT 0 NOT NULL,
	`queued` integer DEFAULT 0 NOT NULL,
	`running` integer DEFAULT 0 NOT NULL,
	`stored_bytes` integer DEFAULT 0 NOT NULL,
	`cpu_day` integer DEFAULT 0 NOT NULL,
	`cpu_ms` integer DEFAULT 0 NOT NULL,
	`max_queued` integer,
	`max_running` integer,
	`max_stored_bytes` integer,
	`max_cpu_s_day` integer,
	`max_requests` integer
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `tenants_bounded` ON `tenants` (`name`) WHERE "tenants"."max_running" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `tenants_used` ON `tenants` (`used_day`);--> statement-breakpoint
CREATE TABLE `webhook_deliveries` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`event_seq` integer NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
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
CREATE UNIQUE INDEX `webhook_deliveries_receiver` ON `webhook_deliveries` (`event_seq`,`receiver`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_due` ON `webhook_deliveries` (`receiver`,`due_at`) WHERE "webhook_deliveries"."status" = 'pending';--> statement-breakpoint
CREATE INDEX `webhook_deliveries_tenant` ON `webhook_deliveries` (`tenant`,`id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_execution` ON `webhook_deliveries` (`execution_id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_endpoint` ON `webhook_deliveries` (`tenant`,`receiver`,`id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_status` ON `webhook_deliveries` (`tenant`,`status`,`id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_changed_at` ON `webhook_deliveries` (`changed_at`);--> statement-breakpoint
CREATE TABLE `webhook_events` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`execution_id` text NOT NULL,
	`type` text NOT NULL,
	`data` text NOT NULL,
	`callback_url` text,
	`created_at` integer NOT NULL,
	`is_fanned_out` integer DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `webhook_events_execution_id_unique` ON `webhook_events` (`execution_id`);--> statement-breakpoint
CREATE INDEX `webhook_events_new` ON `webhook_events` (`seq`) WHERE "webhook_events"."is_fanned_out" = 0;--> statement-breakpoint
CREATE INDEX `webhook_events_created_at` ON `webhook_events` (`created_at`);--> statement-breakpoint
CREATE INDEX `webhook_events_tenant` ON `webhook_events` (`tenant`,`seq`);