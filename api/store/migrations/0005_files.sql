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
CREATE INDEX `files_expires_at` ON `files` (`expires_at`);--> statement-breakpoint
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
CREATE INDEX `input_files_owner` ON `input_files` (`owner`) WHERE "input_files"."owner" IS NOT NULL;--> statement-breakpoint
ALTER TABLE `executions` ADD `inputs` text;