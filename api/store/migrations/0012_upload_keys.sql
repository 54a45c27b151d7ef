ALTER TABLE `files` ADD `upload_key` text;--> statement-breakpoint
CREATE UNIQUE INDEX `files_upload_key` ON `files` (`upload_key`) WHERE "files"."upload_key" IS NOT NULL;--> statement-breakpoint
CREATE INDEX `webhook_deliveries_endpoint` ON `webhook_deliveries` (`receiver`,`id`);