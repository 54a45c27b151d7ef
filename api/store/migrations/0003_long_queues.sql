DROP INDEX `executions_status`;--> statement-breakpoint
CREATE INDEX `executions_status` ON `executions` (`tenant`,`status`,`seq`) WHERE "executions"."status" <> 'running';--> statement-breakpoint
DROP INDEX `executions_job_type_status`;--> statement-breakpoint
CREATE INDEX `executions_job_type_status` ON `executions` (`tenant`,`job_type`,`status`,`seq`) WHERE "executions"."status" <> 'running';--> statement-breakpoint
CREATE INDEX `executions_files` ON `executions` (`tenant`,`seq`) WHERE "executions"."kind" = 'files';--> statement-breakpoint
CREATE INDEX `executions_oldest` ON `executions` (`created_at`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NULL AND "executions"."run_at" IS NULL;--> statement-breakpoint
-- Must be the newest: see api/store/job-tables.ts.
DROP INDEX `executions_rank`;--> statement-breakpoint
CREATE INDEX `executions_rank` ON `executions` (`job_type`,`rank`,`seq`) WHERE "executions"."status" = 'queued' AND "executions"."session_id" IS NULL;
