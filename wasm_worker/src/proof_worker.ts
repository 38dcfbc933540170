/**
 * The early worker: pieces that need no Python, while workers that have it load.
 *
 * It takes one task at a time and answers each by its id; see protocol.ts.
 */

import { blake3 } from "./blake3";
import { verifier } from "./ml_dsa";
import { proofs, type Proofs } from "./proofs";
import { inWords, type FromWorker, type ToWorker } from "./protocol";

function tell(message: FromWorker): void {
  postMessage(message);
}

async function prove(able: Proofs, { id, task }: Extract<ToWorker, { type: "task" }>) {
  const startedMs = performance.now();
  const proof = able[task.kind];
  if (proof === undefined) throw new Error(`a piece of the kind ${task.kind} is no proof`);
  const result = await proof(task.parameters, task.blobs);
  tell({ type: "done", id, result, ms: performance.now() - startedMs });
}

async function begin(): Promise<void> {
  const able = proofs(await verifier(), await blake3());
  addEventListener("message", ({ data }: MessageEvent<ToWorker>) => {
    if (data.type !== "task") return;
    prove(able, data).catch((fault: unknown) => {
      tell({ type: "failed", id: data.id, reason: inWords(fault) });
    });
  });
  tell({ type: "proves" });
}

begin().catch((fault: unknown) => tell({ type: "failed", id: null, reason: inWords(fault) }));
