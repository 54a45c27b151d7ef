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
CREATE UNIQUE INDEX `builds_lease` ON `builds` (`lease_id`) WHERE "builds"."lease_id" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `builds_built` ON `builds` (`job_type`,`spec`,`seq`) WHERE "builds"."status" = 'built';--> statement-breakpoint
ALTER TABLE `agents` ADD `images` text DEFAULT '[]' NOT NULL;