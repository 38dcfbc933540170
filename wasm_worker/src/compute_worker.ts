/**
 * The compute worker: the daemon's own recompute.py on numpy in Pyodide, with a fast product.
 *
 * Everything it loads comes from the page's own origin. A load that failed is final: the page then
 * starts another worker.
 */

import { blake3 } from "hash-wasm";
import { loadPyodide, version as pyodideVersion, type PyodideInterface } from "pyodide";
import type { PyBuffer, PyCallable, PyProxy } from "pyodide/ffi";
import kernelAddress from "../build/matmul.wasm?url";
import recomputeSource from "../../daa_node/spot_checks/recompute.py?raw";
import inPageSource from "./in_page.py?raw";
import { joinMemory, type SideModuleLoader } from "./kernel";
import {
  inWords, tooMuch,
  type Answer, type FromWorker, type Matmul, type Task, type ToWorker, type Version,
} from "./protocol";

interface Loaded {
  readonly outcome: PyCallable; // in_page.outcome
  readonly matmul: PyProxy; // recompute.Matmul
}

let loaded: Loaded | null = null;

function tell(message: FromWorker): void {
  postMessage(message);
}

async function bytesAt(address: string): Promise<Uint8Array> {
  const response = await fetch(new URL(address, self.location.href));
  if (!response.ok) throw new Error(`${address}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function load(runtime: string, matmul: Matmul): Promise<[Loaded, Version]> {
  tell({ type: "loading", step: "python" });
  const python = await loadPyodide({ indexURL: runtime });
  tell({ type: "loading", step: "numpy" });
  await loadNumpy(python);
  tell({ type: "loading", step: "kernels" });
  python.FS.writeFile("/home/pyodide/recompute.py", recomputeSource);
  python.FS.writeFile("/home/pyodide/in_page.py", inPageSource);
  const inPage = python.pyimport("in_page");
  const product = matmul === "wasm"
    ? inPage.matmul_by(await kernelFor(python))
    : python.pyimport("recompute").sequential_matmul;
  return [
    { outcome: inPage.outcome, matmul: product },
    {
      recompute: await blake3(new TextEncoder().encode(recomputeSource)),
      pyodide: pyodideVersion,
      numpy: inPage.NUMPY_VERSION,
      matmul,
    },
  ];
}

/** Pyodide compares the wheel's sha256; it tells of a failure and goes on, so we do not. */
async function loadNumpy(python: PyodideInterface): Promise<void> {
  const failures: string[] = [];
  await python.loadPackage("numpy", {
    messageCallback: () => undefined,
    errorCallback: (failure) => failures.push(failure),
  });
  if (failures.length > 0) throw new Error(`numpy could not be loaded: ${failures.join(" ")}`);
}

async function kernelFor(python: PyodideInterface): Promise<unknown> {
  const loader = (python as unknown as { _module: SideModuleLoader })._module;
  return (await joinMemory(loader, await bytesAt(kernelAddress))).matmul;
}

async function answer({ outcome, matmul }: Loaded, task: Task): Promise<Answer> {
  const pair = outcome(task, matmul) as PyProxy;
  const vector = pair.get(0) as PyBuffer;
  const view = vector.getBuffer("u8");
  try {
    return { digest: await blake3(view.data as Uint8Array), loss: pair.get(1) ?? null };
  } finally {
    view.release();
    vector.destroy();
    pair.destroy();
  }
}

async function follow(message: ToWorker): Promise<void> {
  const startedMs = performance.now();
  if (message.type === "load") {
    const [parts, version] = await load(message.runtime, message.matmul);
    loaded = parts;
    tell({ type: "ready", version, loadMs: performance.now() - startedMs });
    return;
  }
  const { id, task } = message;
  if (loaded === null) throw new Error("a task came before the worker was ready");
  const reason = tooMuch(task);
  if (reason !== null) throw new Error(reason);
  tell({ type: "done", id, answer: await answer(loaded, task), ms: performance.now() - startedMs });
}

addEventListener("message", (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  follow(message).catch((error: unknown) => {
    const id = message.type === "task" ? message.id : null;
    tell({ type: "failed", id, reason: inWords(error) });
  });
});
