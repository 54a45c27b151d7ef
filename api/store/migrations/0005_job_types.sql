CREATE TABLE `job_types` (
	`name` text PRIMARY KEY NOT NULL,
	`tenant` text DEFAULT 'default' NOT NULL,
	`definition` text NOT NULL,
	`changed_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `job_types_tenant` ON `job_types` (`tenant`,`name`);