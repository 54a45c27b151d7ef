CREATE TABLE `rate_windows` (
	`client` text PRIMARY KEY NOT NULL,
	`hits` integer NOT NULL,
	`ends_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `rate_windows_end` ON `rate_windows` (`ends_at`);