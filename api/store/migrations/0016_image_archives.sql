ALTER TABLE `builds` ADD `archive_sha256` text;--> statement-breakpoint
ALTER TABLE `builds` ADD `archive_bytes` integer;--> statement-breakpoint
ALTER TABLE `builds` ADD `manifest_digest` text;--> statement-breakpoint
CREATE INDEX `builds_archived` ON `builds` (`seq`) WHERE "builds"."archive_sha256" IS NOT NULL;