/**
 * The compute worker: the daemon's own recompute.py on numpy in Pyodide, with a fast product.
 *
 * Everything it loads comes from the page's own origin. A load that failed is final: the page then
 * starts another worker.
 */

import { loadPyodide, version as pyodideVersion, type PyodideInterface } from "pyodide";
import type { PyBuffer, PyProxy, PySequence } from "pyodide/ffi";
import kernelAddress from "../build/matmul.wasm?url";
import piecesSource from "../../daa_node/spot_checks/pieces.py?raw";
import recomputeSource from "../../daa_node/spot_checks/recompute.py?raw";
import inPageSource from "./in_page.py?raw";
import { blake3, type Digest } from "./blake3";
import { openGpu, type GpuProduct } from "./gpu";
import { joinMemory, type SideModuleLoader } from "./kernel";
import { verifier } from "./ml_dsa";
import { ascii, hex } from "./net/messages";
import { proofs, type Proofs } from "./proofs";
import {
  inWords, tooMuch,
  type Answer, type Canonical, type FromWorker, type Matmul, type Piece, type Practice,
  type ToWorker, type Version,
} from "./protocol";

/** in_page's functions, with the product in them. */
interface Program {
  outcome(task: Practice): PyProxy | Promise<PyProxy>;
  result(piece: Piece): PySequence | Promise<PySequence>;
}

interface Loaded {
  readonly program: Program;
  readonly proofs: Proofs;
  readonly digest: Digest;
}

const MODULES = {
  "daa_node/__init__.py": "",
  "daa_node/spot_checks/__init__.py": "",
  "daa_node/spot_checks/recompute.py": recomputeSource,
  "daa_node/spot_checks/pieces.py": piecesSource,
  "in_page.py": inPageSource,
};

let loaded: Loaded | null = null;

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
  python.FS.mkdirTree("/home/pyodide/daa_node/spot_checks");
  for (const [path, source] of Object.entries(MODULES)) {
    python.FS.writeFile(`/home/pyodide/${path}`, source);
  }
  const digest = await blake3();
  loaded = {
    program: await programBy(python, matmul, digest),
    proofs: proofs(await verifier(), digest),
    digest,
  };
  return {
    recompute: hex(digest(ascii(recomputeSource))),
    pieces: hex(digest(ascii(piecesSource))),
    pyodide: pyodideVersion,
    numpy: python.pyimport("in_page").NUMPY_VERSION,
    matmul,
  };
}

async function programBy(
  python: PyodideInterface, matmul: Matmul, digest: Digest,
): Promise<Program> {
  const inPage = python.pyimport("in_page");
  const { outcome, result } = inPage;
  switch (matmul) {
    case "numpy": {
      const product = inPage.recompute.sequential_matmul;
      return {
        outcome: (task) => outcome(task, product),
        result: (piece) => result(piece, digest, product),
      };
    }
    case "wasm": {
      const product = inPage.matmul_by(await kernelFor(python));
      return {
        outcome: (task) => outcome(task, product),
        result: (piece) => result(piece, digest, product),
      };
    }
    case "webgpu": {
      if (!("Suspending" in WebAssembly)) {
        throw new Error("in this browser Python cannot wait for WebGPU");
      }
      const product = inPage.matmul_by_waiting(intoArrays(await openGpu(navigator.gpu)));
      return {
        outcome: (task) => outcome.callPromising(task, product),
        result: (piece) => result.callPromising(piece, digest, product),
      };
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

async function answer({ program, digest }: Loaded, task: Practice): Promise<Answer> {
  const pair = await program.outcome(task);
  const vector = pair.get(0) as PyBuffer;
  const view = vector.getBuffer("u8");
  try {
    return { digest: hex(digest(view.data as Uint8Array)), loss: pair.get(1) ?? null };
  } finally {
    view.release();
    vector.destroy();
    pair.destroy();
  }
}

async function result({ program, proofs }: Loaded, piece: Piece): Promise<readonly Canonical[]> {
  const proof = proofs[piece.kind];
  if (proof !== undefined) return proof(piece.parameters, piece.blobs);
  const found = await program.result(piece);
  try {
    return found.toJs() as Canonical[];
  } finally {
    found.destroy();
  }
}

async function follow(message: ToWorker): Promise<void> {
  const startedMs = performance.now();
  if (message.type === "load") {
    const version = await load(message.runtime, message.matmul);
    tell({ type: "ready", version, loadMs: performance.now() - startedMs });
    return;
  }
  if (loaded === null) throw new Error("a task came before the worker was ready");
  if (message.type === "task") {
    const found = await result(loaded, message.task);
    tell({ type: "done", id: message.id, result: found, ms: performance.now() - startedMs });
    return;
  }
  const reason = tooMuch(message.task);
  if (reason !== null) throw new Error(reason);
  const answered = await answer(loaded, message.task);
  tell({ type: "practised", id: message.id, answer: answered, ms: performance.now() - startedMs });
}

addEventListener("message", (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  follow(message).catch((error: unknown) => {
    const id = message.type === "load" ? null : message.id;
    tell({ type: "failed", id, reason: inWords(error) });
  });
});
