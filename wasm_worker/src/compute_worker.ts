/**
 * The compute worker: the daemon's own recompute.py on numpy in Pyodide, with a fast product.
 *
 * Everything it loads comes from the page's own origin. A load that failed is final: the page then
 * starts another worker.
 */

import { blake3 } from "hash-wasm";
import { loadPyodide, version as pyodideVersion, type PyodideInterface } from "pyodide";
import type { PyBuffer, PyProxy } from "pyodide/ffi";
import kernelAddress from "../build/matmul.wasm?url";
import recomputeSource from "../../daa_node/spot_checks/recompute.py?raw";
import inPageSource from "./in_page.py?raw";
import { openGpu, type GpuProduct } from "./gpu";
import { joinMemory, type SideModuleLoader } from "./kernel";
import {
  inWords, tooMuch,
  type Answer, type FromWorker, type Matmul, type Task, type ToWorker, type Version,
} from "./protocol";

/** in_page.outcome, with the product in it. */
type Outcome = (task: Task) => PyProxy | Promise<PyProxy>;

let outcome: Outcome | null = null;

function tell(message: FromWorker): void {
  postMessage(message);
}

async function bytesAt(address: string): Promise<Uint8Array> {
  const response = await fetch(new URL(address, self.location.href));
  if (!response.ok) throw new Error(`${address}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function load(runtime: string, matmul: Matmul): Promise<Version> {
  tell({ type: "loading", step: "python" });
  const python = await loadPyodide({ indexURL: runtime });
  tell({ type: "loading", step: "numpy" });
  await loadNumpy(python);
  tell({ type: "loading", step: "kernels" });
  python.FS.writeFile("/home/pyodide/recompute.py", recomputeSource);
  python.FS.writeFile("/home/pyodide/in_page.py", inPageSource);
  outcome = await outcomeBy(python, matmul);
  return {
    recompute: await blake3(new TextEncoder().encode(recomputeSource)),
    pyodide: pyodideVersion,
    numpy: python.pyimport("in_page").NUMPY_VERSION,
    matmul,
  };
}

async function outcomeBy(python: PyodideInterface, matmul: Matmul): Promise<Outcome> {
  const inPage = python.pyimport("in_page");
  switch (matmul) {
    case "numpy": {
      const product = python.pyimport("recompute").sequential_matmul;
      return (task) => inPage.outcome(task, product);
    }
    case "wasm": {
      const product = inPage.matmul_by(await kernelFor(python));
      return (task) => inPage.outcome(task, product);
    }
    case "webgpu": {
      if (!("Suspending" in WebAssembly)) {
        throw new Error("in this browser Python cannot wait for WebGPU");
      }
      const product = inPage.matmul_by_waiting(intoArrays(await openGpu(navigator.gpu)));
      return (task) => inPage.outcome.callPromising(task, product);
    }
  }
}

const PYODIDE_SAYS = /^The following error occurred while loading [^:]*: /;

/** Pyodide compares the wheel's sha256. It tells of a failure and goes on; we do not. */
async function loadNumpy(python: PyodideInterface): Promise<void> {
  const failures: string[] = [];
  await python.loadPackage("numpy", {
    messageCallback: () => undefined,
    errorCallback: (failure) => failures.push(failure.replace(PYODIDE_SAYS, "")),
  });
  if (failures.length > 0) throw new Error(`numpy could not be loaded: ${failures.join(" ")}`);
}

async function kernelFor(python: PyodideInterface): Promise<unknown> {
  const loader = (python as unknown as { _module: SideModuleLoader })._module;
  return (await joinMemory(loader, await bytesAt(kernelAddress))).matmul;
}

/** The product on arrays of Python: (a, b, sums, groups, rows, inner, columns). */
function intoArrays(product: GpuProduct) {
  return async (
    a: PyBuffer, b: PyBuffer, sums: PyBuffer,
    groups: number, rows: number, inner: number, columns: number,
  ): Promise<void> => {
    // copies, for memory that grows meanwhile moves
    const result = await product(copyOf(a), copyOf(b), { groups, rows, inner, columns });
    const into = sums.getBuffer("f32");
    (into.data as Float32Array).set(result);
    into.release();
  };
}

function copyOf(array: PyBuffer): Float32Array {
  const view = array.getBuffer("f32");
  const copy = (view.data as Float32Array).slice();
  view.release();
  return copy;
}

async function answer(compute: Outcome, task: Task): Promise<Answer> {
  const pair = await compute(task);
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
    const version = await load(message.runtime, message.matmul);
    tell({ type: "ready", version, loadMs: performance.now() - startedMs });
    return;
  }
  const { id, task } = message;
  if (outcome === null) throw new Error("a task came before the worker was ready");
  const reason = tooMuch(task);
  if (reason !== null) throw new Error(reason);
  const answered = await answer(outcome, task);
  tell({ type: "done", id, answer: answered, ms: performance.now() - startedMs });
}

addEventListener("message", (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  follow(message).catch((error: unknown) => {
    const id = message.type === "task" ? message.id : null;
    tell({ type: "failed", id, reason: inWords(error) });
  });
});
