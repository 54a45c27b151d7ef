-- {"executions":[{"execution_id":"01a20350-cbfc-717b-a8fa-6cc9e5d76f3b","status":"queued","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.476Z","started_at":null,"ended_at":null,"duration_ms":null,"exit_code":null,"stdout":"","stderr":"","output":null,"error":null,"timing":null,"job_ref":null,"container_runtime":null,"artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":18,"sha256":"fe5e5e66c33487f231e9c14a3097b02c80b34a26217a41d7071437f74a0a5eed","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":29,"sha256":"7b05185f67650406ada68772b3531ac47cd50358371b7f298ea78a3a7405347b","content_type":"application/json"}],"resource_usage":null,"code_hash":"fe5e5e66c33487f231e9c14a3097b02c80b34a26217a41d7071437f74a0a5eed","input_hash":"7b05185f67650406ada68772b3531ac47cd50358371b7f298ea78a3a7405347b","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":false,"idempotency_key":null},{"execution_id":"01a20350-cbd9-7773-b334-b8271c330588","status":"queued","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.441Z","started_at":null,"ended_at":null,"duration_ms":null,"exit_code":null,"stdout":"","stderr":"","output":null,"error":null,"timing":null,"job_ref":null,"container_runtime":null,"artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":14,"sha256":"818b0ee723b26903a48eb5dbef509387178f1fda130ba259b78e241081d8ee91","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":25,"sha256":"5680051e4837315b074dc604a255dae0629cf62294f45b182a7890df32bd758f","content_type":"application/json"}],"resource_usage":null,"code_hash":"818b0ee723b26903a48eb5dbef509387178f1fda130ba259b78e241081d8ee91","input_hash":"5680051e4837315b074dc604a255dae0629cf62294f45b182a7890df32bd758f","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":false,"idempotency_key":"answer-2"},{"execution_id":"01a20350-cba2-7422-b0c2-2e6dde2fa1b9","status":"queued","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.386Z","started_at":null,"ended_at":null,"duration_ms":null,"exit_code":null,"stdout":"","stderr":"","output":null,"error":null,"timing":null,"job_ref":null,"container_runtime":null,"artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":21,"sha256":"e871dae24e6879c1ca835c4387940929c44bc1f074e52713662d77463e94d447","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":32,"sha256":"de7b8bcbd31e3a690acea755ad4231e776c938e38f57ab46b61c8aa1fd6356ef","content_type":"application/json"}],"resource_usage":null,"code_hash":"e871dae24e6879c1ca835c4387940929c44bc1f074e52713662d77463e94d447","input_hash":"de7b8bcbd31e3a690acea755ad4231e776c938e38f57ab46b61c8aa1fd6356ef","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":false,"idempotency_key":null},{"execution_id":"01a20350-cb72-75d4-bbed-e38395512ffe","status":"running","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.338Z","started_at":"2026-11-22T12:52:36.350Z","ended_at":null,"duration_ms":null,"exit_code":null,"stdout":"","stderr":"","output":null,"error":null,"timing":null,"job_ref":null,"container_runtime":null,"artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":13,"sha256":"d1500588a145558df14c1d326c37bf0e63f6d897f891e2fd9d7f48a22d92c38d","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":24,"sha256":"f92fc0873bacddbf7117de05dfe1adf173a9307dba08f6166022fca8f64422c1","content_type":"application/json"}],"resource_usage":null,"code_hash":"d1500588a145558df14c1d326c37bf0e63f6d897f891e2fd9d7f48a22d92c38d","input_hash":"f92fc0873bacddbf7117de05dfe1adf173a9307dba08f6166022fca8f64422c1","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":false,"idempotency_key":null},{"execution_id":"01a20350-cb63-7684-8f26-0c3b0e06ac3a","status":"succeeded","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.323Z","started_at":"2026-11-22T12:52:36.326Z","ended_at":"2026-11-22T12:52:36.329Z","duration_ms":3,"exit_code":0,"stdout":"hello\n","stderr":"careful\n","output":{"n":3},"error":null,"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":13,"sha256":"74371f6285caf55b0e886943d7cdbdfe4a944ae09d8fffc129bc57ac490c29aa","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":2,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"74371f6285caf55b0e886943d7cdbdfe4a944ae09d8fffc129bc57ac490c29aa","input_hash":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-cb4b-7268-ad32-29547a72cc81","status":"failed","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.299Z","started_at":"2026-11-22T12:52:36.311Z","ended_at":"2026-11-22T12:52:36.316Z","duration_ms":5,"exit_code":1,"stdout":"hello\n","stderr":"careful\n","output":null,"error":{"type":"key_error","message":"it was key_error","phase":"execution"},"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":15,"sha256":"5f782fada343fd8e6700f42452e0debefa82c863a002c44dff264caf42b39a7e","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":25,"sha256":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"5f782fada343fd8e6700f42452e0debefa82c863a002c44dff264caf42b39a7e","input_hash":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","parent_execution_id":"01a20350-c971-754b-a797-28c38a428152","relationship":"fork","stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-cb32-7118-bcf2-eaf61a583fac","status":"succeeded","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.274Z","started_at":"2026-11-22T12:52:36.282Z","ended_at":"2026-11-22T12:52:36.286Z","duration_ms":4,"exit_code":0,"stdout":"hello\n","stderr":"careful\n","output":{"n":3},"error":null,"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":14,"sha256":"96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":25,"sha256":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de","input_hash":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","parent_execution_id":"01a20350-c971-754b-a797-28c38a428152","relationship":"rerun","stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-cb16-7589-b193-fe3c35618ec7","status":"cancelled","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.246Z","started_at":null,"ended_at":"2026-11-22T12:52:36.261Z","duration_ms":null,"exit_code":null,"stdout":"","stderr":"","output":null,"error":{"type":"cancelled","message":"Cancelled by request.","phase":"startup"},"timing":null,"job_ref":null,"container_runtime":null,"artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":14,"sha256":"ff936d4d400860d79f6761a08c14caf9e3d3e0e647388ee050fbff39d557731a","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":25,"sha256":"8f2e1bae405d6c0d5a6c2163bb1cf66b84fee749c929d89e50362f195d8c4429","content_type":"application/json"}],"resource_usage":null,"code_hash":"ff936d4d400860d79f6761a08c14caf9e3d3e0e647388ee050fbff39d557731a","input_hash":"8f2e1bae405d6c0d5a6c2163bb1cf66b84fee749c929d89e50362f195d8c4429","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":false,"idempotency_key":null},{"execution_id":"01a20350-cb0a-73ad-86a5-f6d4f1831964","status":"oom","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.234Z","started_at":"2026-11-22T12:52:36.239Z","ended_at":"2026-11-22T12:52:36.243Z","duration_ms":4,"exit_code":137,"stdout":"hello\n","stderr":"careful\n","output":null,"error":{"type":"oom","message":"it was oom","phase":"execution"},"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":23,"sha256":"e8705582e448608b1c0560607eb002a049c477a956869c8d72032ad1ec09ca82","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":36,"sha256":"3ed85849c5e51d12bdf8ed9b4a9b7c27ae82ac675ae40c240c6b1b776edfc665","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"e8705582e448608b1c0560607eb002a049c477a956869c8d72032ad1ec09ca82","input_hash":"3ed85849c5e51d12bdf8ed9b4a9b7c27ae82ac675ae40c240c6b1b776edfc665","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-cae9-76ed-8129-21ea8fda7389","status":"timeout","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.201Z","started_at":"2026-11-22T12:52:36.218Z","ended_at":"2026-11-22T12:52:36.223Z","duration_ms":5,"exit_code":null,"stdout":"hello\n","stderr":"careful\n","output":null,"error":{"type":"execution_timeout","message":"it was execution_timeout","phase":"execution"},"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":37,"sha256":"9b59e26e6fd35e027247d63dfedb0cfe05f2c3889853e0e84284477bda59465c","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":50,"sha256":"a57655af6596b11f56801b3853f2f9b14c467a7d38709def0487e9b61fd0e30a","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"9b59e26e6fd35e027247d63dfedb0cfe05f2c3889853e0e84284477bda59465c","input_hash":"a57655af6596b11f56801b3853f2f9b14c467a7d38709def0487e9b61fd0e30a","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-cac5-733e-a4b3-cc986229d2eb","status":"failed","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:36.165Z","started_at":"2026-11-22T12:52:36.185Z","ended_at":"2026-11-22T12:52:36.194Z","duration_ms":9,"exit_code":1,"stdout":"hello\n","stderr":"careful\n","output":null,"error":{"type":"value_error","message":"it was value_error","phase":"execution"},"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[],"input_artifacts":[{"name":"_code.py","size_bytes":31,"sha256":"3c94038ba7163403040e7e16756193491b683d7c43c92463b8ce0105a701f558","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":44,"sha256":"c0f014f50db15a6716aff06ab326c5fc514e3066a2c1811ff9e596f69af23f16","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"3c94038ba7163403040e7e16756193491b683d7c43c92463b8ce0105a701f558","input_hash":"c0f014f50db15a6716aff06ab326c5fc514e3066a2c1811ff9e596f69af23f16","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":true,"idempotency_key":null},{"execution_id":"01a20350-c971-754b-a797-28c38a428152","status":"succeeded","job_type":"default","job_version":"latest","created_at":"2026-11-22T12:52:35.825Z","started_at":"2026-11-22T12:52:35.879Z","ended_at":"2026-11-22T12:52:36.147Z","duration_ms":268,"exit_code":0,"stdout":"hello\n","stderr":"careful\n","output":{"n":3},"error":null,"timing":{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"},"job_ref":"default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","container_runtime":"runc","artifacts":[{"name":"sub/note.txt","size_bytes":4,"sha256":"79f076abdd19a752db7267bfff2f9022161d120dea919fdaca2ffdfc24ca8c96","content_type":"text/plain; charset=utf-8"}],"input_artifacts":[{"name":"_code.py","size_bytes":14,"sha256":"96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de","content_type":"text/x-python; charset=utf-8"},{"name":"_input.json","size_bytes":25,"sha256":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","content_type":"application/json"}],"resource_usage":{"max_rss_mb":9.5,"cpu_time_ms":12,"wall_time_ms":1500},"code_hash":"96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de","input_hash":"e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e","parent_execution_id":null,"relationship":null,"stdout_truncated":false,"stderr_truncated":true,"idempotency_key":"answer-1"}],"deadLetters":[{"id":4,"job_id":"01a20350-cb4b-7268-ad32-29547a72cc81","job_data":{"code":"print('forked')","input_data":{"code":"print('hello')"},"job_type":"default"},"error_type":"key_error","error_message":"it was key_error","retry_count":0,"created_at":"2026-11-22T12:52:36.316Z","client_ip":"127.0.0.1","correlation_id":"01a20350-cb4a-75f4-8dc7-a59ae9fa37fc"},{"id":3,"job_id":"01a20350-cb0a-73ad-86a5-f6d4f1831964","job_data":{"code":"raise SystemExit(\"oom\")","input_data":{"code":"raise SystemExit(\"oom\")"},"job_type":"default"},"error_type":"oom","error_message":"it was oom","retry_count":0,"created_at":"2026-11-22T12:52:36.243Z","client_ip":"127.0.0.1","correlation_id":"01a20350-cb09-70cb-9c13-992c2429ee28"},{"id":2,"job_id":"01a20350-cae9-76ed-8129-21ea8fda7389","job_data":{"code":"raise SystemExit(\"execution_timeout\")","input_data":{"code":"raise SystemExit(\"execution_timeout\")"},"job_type":"default"},"error_type":"execution_timeout","error_message":"it was execution_timeout","retry_count":0,"created_at":"2026-11-22T12:52:36.223Z","client_ip":"127.0.0.1","correlation_id":"01a20350-cae7-7566-ba2e-e8b6ea5bf37f"},{"id":1,"job_id":"01a20350-cac5-733e-a4b3-cc986229d2eb","job_data":{"code":"raise SystemExit(\"value_error\")","input_data":{"code":"raise SystemExit(\"value_error\")"},"job_type":"default"},"error_type":"value_error","error_message":"it was value_error","retry_count":0,"created_at":"2026-11-22T12:52:36.194Z","client_ip":"127.0.0.1","correlation_id":"01a20350-cac3-74a3-9be9-897051fbf6da"}],"builds":[{"status":"built","job_type":"science","image_ref":"airlock-science:v1.0.0","version":"science@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","digest":"sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e","error":null,"created_at":"2026-11-22T12:52:36.492Z","started_at":"2026-11-22T12:52:36.511Z","ended_at":"2026-11-22T12:52:36.807Z","log":"Collecting\n"},{"status":"failed","job_type":"broken","image_ref":"airlock-broken:v1.0.0","version":null,"digest":null,"error":{"type":"dependency_error","message":"no such package","phase":"startup"},"created_at":"2026-11-22T12:52:36.840Z","started_at":"2026-11-22T12:52:36.843Z","ended_at":"2026-11-22T12:52:36.865Z","log":""},{"status":"queued","job_type":"waiting","image_ref":"airlock-waiting:v1.0.0","version":null,"digest":null,"error":null,"created_at":"2026-11-22T12:52:36.884Z","started_at":null,"ended_at":null,"log":""}]}
PRAGMA foreign_keys = OFF;
BEGIN;
CREATE TABLE "__drizzle_migrations" (
			id SERIAL PRIMARY KEY,
			hash text NOT NULL,
			created_at numeric
		);
CREATE TABLE `agent_tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`token_hash` text NOT NULL,
	`next_hash` text,
	`created_at` integer NOT NULL,
	`last_used_at` integer,
	`revoked_at` integer
);
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
	`images` text NOT NULL,
	`last_seen_at` integer NOT NULL,
	`left_at` integer
);
CREATE TABLE `join_codes` (
	`code_hash` text PRIMARY KEY NOT NULL,
	`name` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`token_id` text,
	FOREIGN KEY (`token_id`) REFERENCES `agent_tokens`(`id`) ON UPDATE no action ON DELETE no action
);
CREATE TABLE `build_logs` (
	`build_id` text NOT NULL,
	`lease_id` text NOT NULL,
	`offset` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`build_id`, `lease_id`, `offset`),
	FOREIGN KEY (`build_id`) REFERENCES `builds`(`id`) ON UPDATE no action ON DELETE cascade
);
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
CREATE TABLE `executions` (
	`seq` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`id` text NOT NULL,
	`mode` text NOT NULL,
	`status` text DEFAULT 'queued' NOT NULL,
	`job_type` text NOT NULL,
	`job_version` text DEFAULT 'latest' NOT NULL,
	`job_ref` text,
	`container_runtime` text,
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
	`key_id` text,
	`turn` integer DEFAULT 0 NOT NULL,
	`place` integer DEFAULT 0 NOT NULL,
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
CREATE TABLE `log_chunks` (
	`execution_id` text NOT NULL,
	`lease_id` text NOT NULL,
	`stream` text NOT NULL,
	`offset` integer NOT NULL,
	`data` blob NOT NULL,
	PRIMARY KEY(`execution_id`, `lease_id`, `stream`, `offset`),
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
CREATE TABLE `payloads` (
	`execution_id` text PRIMARY KEY NOT NULL,
	`code` blob NOT NULL,
	`input` blob NOT NULL,
	`stdout` blob,
	`stderr` blob,
	`output` blob,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
CREATE TABLE `queue_fronts` (
	`job_type` text PRIMARY KEY NOT NULL,
	`turn` integer NOT NULL
);
CREATE TABLE `queue_length` (
	`id` integer PRIMARY KEY NOT NULL,
	`queued` integer NOT NULL
);
CREATE TABLE `counts` (
	`name` text NOT NULL,
	`job_type` text NOT NULL,
	`label` text NOT NULL,
	`n` integer NOT NULL,
	PRIMARY KEY(`name`, `job_type`, `label`)
);
CREATE TABLE `dead_letters` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`execution_id` text NOT NULL,
	`error_type` text NOT NULL,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`execution_id`) REFERENCES `executions`(`id`) ON UPDATE no action ON DELETE cascade
);
CREATE TABLE `durations` (
	`job_type` text NOT NULL,
	`phase` text NOT NULL,
	`le_ms` integer NOT NULL,
	`n` integer NOT NULL,
	`sum_ms` integer NOT NULL,
	PRIMARY KEY(`job_type`, `phase`, `le_ms`)
);
CREATE TABLE `removals` (
	`prefix` text PRIMARY KEY NOT NULL,
	`due_at` integer NOT NULL
);
CREATE TABLE `rate_windows` (
	`client` text PRIMARY KEY NOT NULL,
	`hits` integer NOT NULL,
	`ends_at` integer NOT NULL
);
INSERT INTO "__drizzle_migrations" ("id", "hash", "created_at") VALUES (NULL, 'b9c81cc595dd54589079b335fc166f061aed6504ce2b99bc3cc083b8df53205f', 1795351150334);
INSERT INTO "__drizzle_migrations" ("id", "hash", "created_at") VALUES (NULL, '9d537279c871ff54fccd9ba676a1fa82ed94de66df4cddd0cc83af9e6875e907', 1795351157631);
INSERT INTO "agents" ("id", "name", "token_hash", "version", "labels", "accepts", "slots", "gpus", "warm", "pool", "engine", "breaker", "images", "last_seen_at", "left_at") VALUES ('a004116a-8628-463e-b2ba-72ef6b8c456c', 'past', '626b59731655b2cca2dc425bb9e47ee9159603845b37f9b8768e043cdc919638', '0.1.0', '{"zone":"lab"}', '{"job_types":null,"builds":true}', 4, '{"total":0,"free":0}', 1, '[{"job_type":"default","runtime":null,"ready":1,"starting":2,"in_use":0}]', '{"available":true,"version":"20.10","runtimes":["runc","runsc"]}', '{"state":"closed","failure_count":0,"success_count":0,"last_failure":null}', '["python:3.13-slim"]', 1795351956841, NULL);
INSERT INTO "join_codes" ("code_hash", "name", "created_at", "expires_at", "token_id") VALUES ('653c28b3e56aa35d17e023ca222842690c72af36ee7711914d1ea9a9fa95a627', 'past-host', 1795351959572, 1795355559572, NULL);
INSERT INTO "build_logs" ("build_id", "lease_id", "offset", "data") VALUES ('01a20350-cc0c-7669-a072-c587fa903786', 'e0c035c7-264b-4fb3-887c-027ce863fa26', 0, X'436F6C6C656374696E670A');
INSERT INTO "builds" ("seq", "id", "job_type", "tag", "spec", "image_ref", "status", "correlation_id", "attempt", "lease_id", "agent_id", "lease_expires_at", "created_at", "started_at", "ended_at", "digest", "python_version", "archive_sha256", "archive_bytes", "manifest_digest", "error", "report_hash") VALUES (1, '01a20350-cc0c-7669-a072-c587fa903786', 'science', 'v1.0.0', '{"base_image":"python:3.13-slim","requirements":["numpy==2.3.4"]}', 'airlock-science:v1.0.0', 'built', '01a20350-cc0b-7327-b5eb-cfb984b69ff4', 1, 'e0c035c7-264b-4fb3-887c-027ce863fa26', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956492, 1795351956511, 1795351956807, 'sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', '3.13.5', NULL, NULL, NULL, NULL, '96040bd68492876c77b93ed07729e0f136a476020330c6e71ac81900f19b3812');
INSERT INTO "builds" ("seq", "id", "job_type", "tag", "spec", "image_ref", "status", "correlation_id", "attempt", "lease_id", "agent_id", "lease_expires_at", "created_at", "started_at", "ended_at", "digest", "python_version", "archive_sha256", "archive_bytes", "manifest_digest", "error", "report_hash") VALUES (2, '01a20350-cd68-7702-887c-f3892464fbb2', 'broken', 'v1.0.0', '{"base_image":"python:3.13-slim","requirements":["no-such-package"]}', 'airlock-broken:v1.0.0', 'failed', '01a20350-cd67-769d-90c9-17433c0408b6', 1, '2c5e3e8c-887f-41ad-84ff-c9a7cce214d7', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956840, 1795351956843, 1795351956865, NULL, NULL, NULL, NULL, NULL, '{"type":"dependency_error","message":"no such package","phase":"startup"}', '3fcfc52c59a1ad2be6c179ff0e7e500282d229fd49c5613d3d1f4900d9dd7cec');
INSERT INTO "builds" ("seq", "id", "job_type", "tag", "spec", "image_ref", "status", "correlation_id", "attempt", "lease_id", "agent_id", "lease_expires_at", "created_at", "started_at", "ended_at", "digest", "python_version", "archive_sha256", "archive_bytes", "manifest_digest", "error", "report_hash") VALUES (3, '01a20350-cd94-71ce-b3ac-cd3d5f3da1fa', 'waiting', 'v1.0.0', '{"base_image":"python:3.13-slim","requirements":["pandas==2.2.0"]}', 'airlock-waiting:v1.0.0', 'queued', '01a20350-cd92-71aa-b8f9-3f624796dbed', 0, NULL, NULL, NULL, 1795351956884, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO "sqlite_sequence" ("name", "seq") VALUES ('executions', 12);
INSERT INTO "sqlite_sequence" ("name", "seq") VALUES ('dead_letters', 4);
INSERT INTO "sqlite_sequence" ("name", "seq") VALUES ('builds', 3);
INSERT INTO "artifacts" ("execution_id", "lease_id", "name", "size_bytes", "sha256", "content_type") VALUES ('01a20350-c971-754b-a797-28c38a428152', 'd325f39a-4ac0-49ab-801e-bb218531f0d0', 'sub/note.txt', 4, '79f076abdd19a752db7267bfff2f9022161d120dea919fdaca2ffdfc24ca8c96', 'text/plain; charset=utf-8');
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (1, '01a20350-c971-754b-a797-28c38a428152', 'async', 'succeeded', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 60, 60, '[]', 1, 'd325f39a-4ac0-49ab-801e-bb218531f0d0', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351955825, 0, 1795351955825, 1795351955879, 1795351955888, 1795351956147, 0, NULL, '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '262c1a95f41881c6f04ae0a7977e38a857068846393eeb2ca3949cb68ac10504', '96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de', 'e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e', 14, 25, NULL, NULL, 'answer-1', '659d330e0891852b1c1f57e894121b3161d98178073dba26b39dbb78e2489602', '01a20350-c95e-7057-86a0-944bc148ca58', '127.0.0.1', '4eb64be5c69f3913', 1, 1);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (2, '01a20350-cac5-733e-a4b3-cc986229d2eb', 'async', 'failed', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 30, 60, '[]', 1, 'ee4f94f5-6039-4d38-8b35-c63253bbc750', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956165, 0, 1795351956165, 1795351956185, NULL, 1795351956194, 1, '{"type":"value_error","message":"it was value_error","phase":"execution"}', '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '4f81cecd9428418e598f7f6467696852d4de73a6ffc4ae7e825dc08c9db652f5', '3c94038ba7163403040e7e16756193491b683d7c43c92463b8ce0105a701f558', 'c0f014f50db15a6716aff06ab326c5fc514e3066a2c1811ff9e596f69af23f16', 31, 44, NULL, NULL, NULL, 'ddfbc7bf004dc0dbfcfcec668c54c14b7cf4583d4334b1a4fc6653d65e02f736', '01a20350-cac3-74a3-9be9-897051fbf6da', '127.0.0.1', '4eb64be5c69f3913', 2, 2);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (3, '01a20350-cae9-76ed-8129-21ea8fda7389', 'async', 'timeout', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 30, 60, '[]', 1, 'e09724c3-aac1-4674-80d4-b6bbf2572147', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956201, 0, 1795351956201, 1795351956218, NULL, 1795351956223, NULL, '{"type":"execution_timeout","message":"it was execution_timeout","phase":"execution"}', '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '9c46935e69ad14610eee5edb99f79b6ec65443f27f712fbe01c2ca8523fe0331', '9b59e26e6fd35e027247d63dfedb0cfe05f2c3889853e0e84284477bda59465c', 'a57655af6596b11f56801b3853f2f9b14c467a7d38709def0487e9b61fd0e30a', 37, 50, NULL, NULL, NULL, '238833338f4045a2e861177c85b8045a78df891c8be078044e5c01195f19beda', '01a20350-cae7-7566-ba2e-e8b6ea5bf37f', '127.0.0.1', '4eb64be5c69f3913', 3, 3);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (4, '01a20350-cb0a-73ad-86a5-f6d4f1831964', 'async', 'oom', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 30, 60, '[]', 1, '5c7dbfce-1dd4-4bec-8b6b-575897ad3acd', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956234, 0, 1795351956234, 1795351956239, NULL, 1795351956243, 137, '{"type":"oom","message":"it was oom","phase":"execution"}', '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, 'ce6874d45a610626dfdd17a36701a58b2b928efe06e524df93827381bf0214ba', 'e8705582e448608b1c0560607eb002a049c477a956869c8d72032ad1ec09ca82', '3ed85849c5e51d12bdf8ed9b4a9b7c27ae82ac675ae40c240c6b1b776edfc665', 23, 36, NULL, NULL, NULL, 'e9572dfa0bdb3f087769872f84579b1f04be15f31f90d5752e8ffa6b7faa58f2', '01a20350-cb09-70cb-9c13-992c2429ee28', '127.0.0.1', '4eb64be5c69f3913', 4, 4);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (5, '01a20350-cb16-7589-b193-fe3c35618ec7', 'async', 'cancelled', 'default', 'latest', NULL, NULL, 30, 60, '[]', 0, NULL, NULL, NULL, 1795351956246, 0, 1795351956246, NULL, NULL, 1795351956261, NULL, '{"type":"cancelled","message":"Cancelled by request.","phase":"startup"}', NULL, NULL, NULL, NULL, 0, 0, NULL, 'ff936d4d400860d79f6761a08c14caf9e3d3e0e647388ee050fbff39d557731a', '8f2e1bae405d6c0d5a6c2163bb1cf66b84fee749c929d89e50362f195d8c4429', 14, 25, NULL, NULL, NULL, '37dda18fd78a7de0cc75a0c20ea57e454d4d5a184e83b91c44f1bbebffe14d86', '01a20350-cb16-7589-b193-fa0d23d44aed', '127.0.0.1', '4eb64be5c69f3913', 5, 5);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (6, '01a20350-cb32-7118-bcf2-eaf61a583fac', 'async', 'succeeded', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 60, 60, '[]', 1, 'b89dd2e1-f094-4c82-862c-830546a86a09', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956274, 0, 1795351956274, 1795351956282, NULL, 1795351956286, 0, NULL, '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '262c1a95f41881c6f04ae0a7977e38a857068846393eeb2ca3949cb68ac10504', '96f43d529af3430cb6b0e2c02f6b38ef1a121e8a31d2d09a3ebb716f2f35c9de', 'e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e', 14, 25, '01a20350-c971-754b-a797-28c38a428152', 'rerun', NULL, '659d330e0891852b1c1f57e894121b3161d98178073dba26b39dbb78e2489602', '01a20350-cb2e-7147-8acb-be43b717fe6a', '127.0.0.1', '4eb64be5c69f3913', 5, 5);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (7, '01a20350-cb4b-7268-ad32-29547a72cc81', 'async', 'failed', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 60, 60, '[]', 1, '470d9e14-5d87-4ad5-81e0-fb26ced11463', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956299, 0, 1795351956299, 1795351956311, NULL, 1795351956316, 1, '{"type":"key_error","message":"it was key_error","phase":"execution"}', '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '1e94496e68a3ffe6e55fba99acf74f0012fed18d812e91a4e964d683779f5b3b', '5f782fada343fd8e6700f42452e0debefa82c863a002c44dff264caf42b39a7e', 'e046ebb1429d8c0079531b7346b2841f7557e21385ce5bfe24b65b5252b65d6e', 15, 25, '01a20350-c971-754b-a797-28c38a428152', 'fork', NULL, '2c5875f6b7d1d08a4b1d535bed50ac1fdcb10c39bb57c0490b8831d0cda91e3b', '01a20350-cb4a-75f4-8dc7-a59ae9fa37fc', '127.0.0.1', '4eb64be5c69f3913', 6, 6);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (8, '01a20350-cb63-7684-8f26-0c3b0e06ac3a', 'sync', 'succeeded', 'default', 'latest', 'default@sha256:4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e4e', 'runc', 30, 60, '[]', 1, 'a8768d2d-1ddc-41eb-8a6d-a6d47b9fce6d', 'a004116a-8628-463e-b2ba-72ef6b8c456c', NULL, 1795351956323, 0, 1795351956323, 1795351956326, NULL, 1795351956329, 0, NULL, '{"startup_ms":21,"dep_install_ms":0,"execution_ms":1500,"total_ms":1530,"phase_at_exit":"completed"}', 9.5, 12, 1500, 0, 1, '262c1a95f41881c6f04ae0a7977e38a857068846393eeb2ca3949cb68ac10504', '74371f6285caf55b0e886943d7cdbdfe4a944ae09d8fffc129bc57ac490c29aa', '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 13, 2, NULL, NULL, NULL, '5758f560f8df72465358b87be5d86cfecc75b45110248da8a9f3055de6c74669', '01a20350-cb62-7738-8048-b8f0bc5b4a23', '127.0.0.1', '4eb64be5c69f3913', 7, 7);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (9, '01a20350-cb72-75d4-bbed-e38395512ffe', 'async', 'running', 'default', 'latest', NULL, NULL, 30, 60, '[]', 1, '82eb36c2-be95-46f9-89a6-2108fcdf5195', 'a004116a-8628-463e-b2ba-72ef6b8c456c', 1795352556842, 1795351956338, 0, 1795351956338, 1795351956350, 1795351956355, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 'd1500588a145558df14c1d326c37bf0e63f6d897f891e2fd9d7f48a22d92c38d', 'f92fc0873bacddbf7117de05dfe1adf173a9307dba08f6166022fca8f64422c1', 13, 24, NULL, NULL, NULL, '52ce6f4684cb9c4d043439ba2cc95e7c63b531de7f4b0eee326806bf1e22b455', '01a20350-cb71-733d-9a6c-e0d183f3ba03', '127.0.0.1', '4eb64be5c69f3913', 8, 8);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (10, '01a20350-cba2-7422-b0c2-2e6dde2fa1b9', 'async', 'queued', 'default', 'latest', NULL, NULL, 30, 60, '[]', 1, NULL, NULL, NULL, 1795351957346, 0, 1795351956386, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 'e871dae24e6879c1ca835c4387940929c44bc1f074e52713662d77463e94d447', 'de7b8bcbd31e3a690acea755ad4231e776c938e38f57ab46b61c8aa1fd6356ef', 21, 32, NULL, NULL, NULL, '2115d1d91c6b471ab3b0e5a17b308dc3242763feaaec61e864504adfb5be9bc3', '01a20350-cba1-71ff-90a6-525e73848e88', '127.0.0.1', '4eb64be5c69f3913', 9, 9);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (11, '01a20350-cbd9-7773-b334-b8271c330588', 'async', 'queued', 'default', 'latest', NULL, NULL, 30, 60, '["humanize>=4"]', 0, NULL, NULL, NULL, 1795351956441, 0, 1795351956441, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, '818b0ee723b26903a48eb5dbef509387178f1fda130ba259b78e241081d8ee91', '5680051e4837315b074dc604a255dae0629cf62294f45b182a7890df32bd758f', 14, 25, NULL, NULL, 'answer-2', '371a062e0f464232bd75eb0c5402f02def6d2c897422cdc8379c74fb659ec92a', '01a20350-cbd6-70d4-92a0-7cbe278585b4', '127.0.0.1', '4eb64be5c69f3913', 10, 10);
INSERT INTO "executions" ("seq", "id", "mode", "status", "job_type", "job_version", "job_ref", "container_runtime", "timeout_s", "startup_timeout_s", "requirements", "attempt", "lease_id", "agent_id", "lease_expires_at", "available_at", "cancel_requested", "created_at", "started_at", "code_started_at", "ended_at", "exit_code", "error", "timing", "max_rss_mb", "cpu_time_ms", "wall_time_ms", "stdout_truncated", "stderr_truncated", "result_hash", "code_hash", "input_hash", "code_bytes", "input_bytes", "parent_execution_id", "relationship", "idempotency_key", "submission_hash", "correlation_id", "client_ip", "key_id", "turn", "place") VALUES (12, '01a20350-cbfc-717b-a8fa-6cc9e5d76f3b', 'async', 'queued', 'default', 'latest', NULL, NULL, 120, 90, '[]', 0, NULL, NULL, NULL, 1795351956476, 0, 1795351956476, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 'fe5e5e66c33487f231e9c14a3097b02c80b34a26217a41d7071437f74a0a5eed', '7b05185f67650406ada68772b3531ac47cd50358371b7f298ea78a3a7405347b', 18, 29, NULL, NULL, NULL, 'd893b0ce48bf368e230b82b67a5c1e4e100a162f76037def4964091d1e0c9dfc', '01a20350-cbfb-7776-b6fd-2cdcc921f417', '127.0.0.1', '4eb64be5c69f3913', 11, 11);
INSERT INTO "log_chunks" ("execution_id", "lease_id", "stream", "offset", "data") VALUES ('01a20350-cb72-75d4-bbed-e38395512ffe', '82eb36c2-be95-46f9-89a6-2108fcdf5195', 'stdout', 0, X'736F206661720A');
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-c971-754b-a797-28c38a428152', X'7072696E74282768656C6C6F2729', X'7B22636F6465223A227072696E74282768656C6C6F2729227D', X'68656C6C6F0A', X'6361726566756C0A', X'7B226E223A337D');
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cac5-733e-a4b3-cc986229d2eb', X'72616973652053797374656D45786974282276616C75655F6572726F722229', X'7B22636F6465223A2272616973652053797374656D45786974285C2276616C75655F6572726F725C2229227D', X'68656C6C6F0A', X'6361726566756C0A', NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cae9-76ed-8129-21ea8fda7389', X'72616973652053797374656D457869742822657865637574696F6E5F74696D656F75742229', X'7B22636F6465223A2272616973652053797374656D45786974285C22657865637574696F6E5F74696D656F75745C2229227D', X'68656C6C6F0A', X'6361726566756C0A', NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb0a-73ad-86a5-f6d4f1831964', X'72616973652053797374656D4578697428226F6F6D2229', X'7B22636F6465223A2272616973652053797374656D45786974285C226F6F6D5C2229227D', X'68656C6C6F0A', X'6361726566756C0A', NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb16-7589-b193-fe3c35618ec7', X'7072696E7428276E657665722729', X'7B22636F6465223A227072696E7428276E657665722729227D', NULL, NULL, NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb32-7118-bcf2-eaf61a583fac', X'7072696E74282768656C6C6F2729', X'7B22636F6465223A227072696E74282768656C6C6F2729227D', X'68656C6C6F0A', X'6361726566756C0A', X'7B226E223A337D');
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb4b-7268-ad32-29547a72cc81', X'7072696E742827666F726B65642729', X'7B22636F6465223A227072696E74282768656C6C6F2729227D', X'68656C6C6F0A', X'6361726566756C0A', NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb63-7684-8f26-0c3b0e06ac3a', X'7072696E74282773796E632729', X'7B7D', X'68656C6C6F0A', X'6361726566756C0A', X'7B226E223A337D');
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cb72-75d4-bbed-e38395512ffe', X'7072696E74282772756E732729', X'7B22636F6465223A227072696E74282772756E732729227D', NULL, NULL, NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cba2-7422-b0c2-2e6dde2fa1b9', X'7072696E7428277472696564206265666F72652729', X'7B22636F6465223A227072696E7428277472696564206265666F72652729227D', NULL, NULL, NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cbd9-7773-b334-b8271c330588', X'7072696E74282777616974732729', X'7B22636F6465223A227072696E74282777616974732729227D', NULL, NULL, NULL);
INSERT INTO "payloads" ("execution_id", "code", "input", "stdout", "stderr", "output") VALUES ('01a20350-cbfc-717b-a8fa-6cc9e5d76f3b', X'7072696E742827776169747320746F6F2729', X'7B22636F6465223A227072696E742827776169747320746F6F2729227D', NULL, NULL, NULL);
INSERT INTO "queue_fronts" ("job_type", "turn") VALUES ('default', 9);
INSERT INTO "queue_fronts" ("job_type", "turn") VALUES ('science', 9);
INSERT INTO "queue_fronts" ("job_type", "turn") VALUES ('broken', 9);
INSERT INTO "queue_fronts" ("job_type", "turn") VALUES ('waiting', 9);
INSERT INTO "queue_length" ("id", "queued") VALUES (1, 3);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('dead_letters', '', '', 4);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('executions', 'default', 'succeeded', 3);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('executions', 'default', 'failed', 2);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('executions', 'default', 'timeout', 1);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('executions', 'default', 'oom', 1);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('executions', 'default', 'cancelled', 1);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('leases', 'default', 'released', 1);
INSERT INTO "counts" ("name", "job_type", "label", "n") VALUES ('retries', 'default', '', 1);
INSERT INTO "dead_letters" ("id", "execution_id", "error_type", "created_at") VALUES (1, '01a20350-cac5-733e-a4b3-cc986229d2eb', 'value_error', 1795351956194);
INSERT INTO "dead_letters" ("id", "execution_id", "error_type", "created_at") VALUES (2, '01a20350-cae9-76ed-8129-21ea8fda7389', 'execution_timeout', 1795351956223);
INSERT INTO "dead_letters" ("id", "execution_id", "error_type", "created_at") VALUES (3, '01a20350-cb0a-73ad-86a5-f6d4f1831964', 'oom', 1795351956243);
INSERT INTO "dead_letters" ("id", "execution_id", "error_type", "created_at") VALUES (4, '01a20350-cb4b-7268-ad32-29547a72cc81', 'key_error', 1795351956316);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'queue', 100, 1, 54);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'startup', 25, 7, 147);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'execution', 2500, 7, 10500);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'total', 2500, 7, 10710);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'queue', 25, 3, 49);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'queue', 5, 2, 8);
INSERT INTO "durations" ("job_type", "phase", "le_ms", "n", "sum_ms") VALUES ('default', 'queue', 10, 1, 8);
INSERT INTO "removals" ("prefix", "due_at") VALUES ('01a20350-cba2-7422-b0c2-2e6dde2fa1b9/39c1bd97-707b-4a12-8dc5-3683ae4bb33b', 1795355557346);
INSERT INTO "removals" ("prefix", "due_at") VALUES ('01a20350-cd68-7702-887c-f3892464fbb2/2c5e3e8c-887f-41ad-84ff-c9a7cce214d7', 1795355556865);
CREATE UNIQUE INDEX `agent_tokens_token_hash_unique` ON `agent_tokens` (`token_hash`);
CREATE UNIQUE INDEX `agent_tokens_next_hash_unique` ON `agent_tokens` (`next_hash`);
CREATE UNIQUE INDEX `builds_id_unique` ON `builds` (`id`);
CREATE UNIQUE INDEX `builds_open` ON `builds` (`job_type`,`tag`,`spec`) WHERE "builds"."status" IN ('queued', 'running');
CREATE INDEX `builds_queue` ON `builds` (`seq`) WHERE "builds"."status" IN ('queued', 'running');
CREATE UNIQUE INDEX `builds_lease` ON `builds` (`lease_id`) WHERE "builds"."lease_id" IS NOT NULL;
CREATE INDEX `builds_built` ON `builds` (`job_type`,`spec`,`seq`) WHERE "builds"."status" = 'built';
CREATE INDEX `builds_archived` ON `builds` (`seq`) WHERE "builds"."archive_sha256" IS NOT NULL;
CREATE UNIQUE INDEX `executions_id_unique` ON `executions` (`id`);
CREATE UNIQUE INDEX `executions_idempotency_key` ON `executions` (`idempotency_key`) WHERE "executions"."idempotency_key" IS NOT NULL;
CREATE INDEX `executions_queue` ON `executions` (`seq`) WHERE "executions"."status" = 'queued';
CREATE INDEX `executions_position` ON `executions` (`place`,`seq`) WHERE "executions"."status" = 'queued';
CREATE INDEX `executions_turn` ON `executions` (`key_id`,`turn`) WHERE "executions"."status" = 'queued';
CREATE UNIQUE INDEX `executions_lease` ON `executions` (`lease_id`) WHERE "executions"."lease_id" IS NOT NULL;
CREATE INDEX `executions_expiry` ON `executions` (`lease_expires_at`) WHERE "executions"."status" = 'running';
CREATE INDEX `executions_holder` ON `executions` (`agent_id`) WHERE "executions"."status" = 'running';
CREATE INDEX `executions_status` ON `executions` (`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');
CREATE INDEX `executions_job_type` ON `executions` (`job_type`,`seq`);
CREATE INDEX `executions_job_type_status` ON `executions` (`job_type`,`status`,`seq`) WHERE "executions"."status" NOT IN ('queued', 'running');
CREATE INDEX `executions_place` ON `executions` (`job_type`,`place`,`seq`) WHERE "executions"."status" = 'queued';
CREATE UNIQUE INDEX `dead_letters_execution_id_unique` ON `dead_letters` (`execution_id`);
CREATE INDEX `dead_letters_error_type` ON `dead_letters` (`error_type`,`id`);
CREATE INDEX `dead_letters_created_at` ON `dead_letters` (`created_at`);
CREATE INDEX `removals_due` ON `removals` (`due_at`);
CREATE INDEX `rate_windows_end` ON `rate_windows` (`ends_at`);
CREATE TRIGGER `executions_final` BEFORE UPDATE OF `status` ON `executions`
WHEN OLD.`status` NOT IN ('queued', 'running') AND NEW.`status` <> OLD.`status`
BEGIN
  SELECT RAISE(ABORT, 'a finished execution cannot change its status');
END;
CREATE TRIGGER `executions_dead_letter` AFTER UPDATE OF `status` ON `executions`
WHEN NEW.`mode` = 'async'
  AND NEW.`status` IN ('failed', 'timeout', 'oom')
  AND OLD.`status` IN ('queued', 'running')
BEGIN
  INSERT INTO `dead_letters` (`execution_id`, `error_type`, `created_at`)
  VALUES (NEW.`id`, json_extract(NEW.`error`, '$.type'), NEW.`ended_at`);
END;
CREATE TRIGGER `executions_queued` AFTER INSERT ON `executions`
WHEN NEW.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + 1 WHERE `id` = 1;
END;
CREATE TRIGGER `executions_queue_moved` AFTER UPDATE OF `status` ON `executions`
WHEN (OLD.`status` = 'queued') <> (NEW.`status` = 'queued')
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` + iif(NEW.`status` = 'queued', 1, -1) WHERE `id` = 1;
END;
CREATE TRIGGER `executions_unqueued` AFTER DELETE ON `executions`
WHEN OLD.`status` = 'queued'
BEGIN
  UPDATE `queue_length` SET `queued` = `queued` - 1 WHERE `id` = 1;
END;
CREATE TRIGGER `executions_counted` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` IN ('queued', 'running') AND NEW.`status` NOT IN ('queued', 'running')
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`)
  VALUES ('executions', NEW.`job_type`, NEW.`status`, 1)
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
  INSERT INTO `durations` (`job_type`, `phase`, `le_ms`, `n`, `sum_ms`)
  SELECT NEW.`job_type`, `column1`,
    CASE
      WHEN `column2` <= 5 THEN 5
      WHEN `column2` <= 10 THEN 10
      WHEN `column2` <= 25 THEN 25
      WHEN `column2` <= 50 THEN 50
      WHEN `column2` <= 100 THEN 100
      WHEN `column2` <= 250 THEN 250
      WHEN `column2` <= 500 THEN 500
      WHEN `column2` <= 1000 THEN 1000
      WHEN `column2` <= 2500 THEN 2500
      WHEN `column2` <= 5000 THEN 5000
      WHEN `column2` <= 10000 THEN 10000
      WHEN `column2` <= 30000 THEN 30000
      WHEN `column2` <= 60000 THEN 60000
      WHEN `column2` <= 300000 THEN 300000
      WHEN `column2` <= 1800000 THEN 1800000
      WHEN `column2` <= 3600000 THEN 3600000
      ELSE 9007199254740991
    END,
    1, `column2`
  FROM (VALUES
    ('queue', max(0, NEW.`started_at` - NEW.`created_at`)),
    ('startup', json_extract(NEW.`timing`, '$.startup_ms')),
    ('dep_install', nullif(json_extract(NEW.`timing`, '$.dep_install_ms'), 0)),
    ('execution', json_extract(NEW.`timing`, '$.execution_ms')),
    ('total', json_extract(NEW.`timing`, '$.total_ms')))
  WHERE `column2` IS NOT NULL
  ON CONFLICT DO UPDATE SET `n` = `n` + 1, `sum_ms` = `sum_ms` + excluded.`sum_ms`;
END;
CREATE TRIGGER `executions_lease_lost` AFTER UPDATE OF `status` ON `executions`
WHEN OLD.`status` = 'running' AND NEW.`status` <> 'running' AND NEW.`result_hash` IS NULL
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`)
  SELECT 'leases', NEW.`job_type`,
    iif(coalesce(NEW.`ended_at`, NEW.`available_at`) >= OLD.`lease_expires_at`, 'expired', 'released'), 1
  UNION ALL
  SELECT 'retries', NEW.`job_type`, '', 1 WHERE NEW.`status` = 'queued'
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
  INSERT INTO `removals` (`prefix`, `due_at`)
  VALUES (NEW.`id` || '/' || OLD.`lease_id`, coalesce(NEW.`ended_at`, NEW.`available_at`) + 3600000)
  ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER `dead_letters_counted` AFTER INSERT ON `dead_letters`
BEGIN
  INSERT INTO `counts` (`name`, `job_type`, `label`, `n`) VALUES ('dead_letters', '', '', 1)
  ON CONFLICT DO UPDATE SET `n` = `n` + 1;
END;
CREATE TRIGGER `dead_letters_discounted` AFTER DELETE ON `dead_letters`
BEGIN
  UPDATE `counts` SET `n` = `n` - 1 WHERE `name` = 'dead_letters';
END;
COMMIT;
