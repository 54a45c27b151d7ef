CREATE TABLE `webhook_deliveries` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`event_seq` integer NOT NULL,
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
CREATE INDEX `webhook_deliveries_execution` ON `webhook_deliveries` (`execution_id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_status` ON `webhook_deliveries` (`status`,`id`);--> statement-breakpoint
CREATE INDEX `webhook_deliveries_changed_at` ON `webhook_deliveries` (`changed_at`);--> statement-breakpoint
CREATE TABLE `webhook_events` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
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
ALTER TABLE `executions` ADD `callback_url` text;