import { afterAll, beforeAll } from "vitest";
import {
  type ServiceOptions,
  startTestService,
  type TestService,
  type Variables,
} from "./test-service.ts";

/** The service of the tests that run. */
export let service: TestService;

/** Gives all tests of a file one service with an agent. */
export function useTestService(options: ServiceOptions = {}, agent: Variables = {}): void {
  beforeAll(async () => {
    service = await startTestService(options);
    await service.startAgent("agent", agent);
  });
  afterAll(() => service?.[Symbol.asyncDispose]());
}
