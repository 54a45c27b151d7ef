/** Address of a job's page in the service's console. */
export function consoleAddress(url: string, jobId: string): string {
  return `${url}/console/executions/${jobId}`;
}
