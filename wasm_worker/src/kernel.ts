/**
 * The WASM matrix product, placed in Pyodide's own memory: it reads and writes numpy's arrays where
 * they lie, and Python calls it with addresses. Nothing is copied and no array is wrapped.
 *
 * Pyodide is an Emscripten main program, so the kernel joins it as a side module. What marks one is
 * a custom section in front (WebAssembly tool conventions, DynamicLinking.md), "dylink.0": here it
 * says that the module needs no memory and no table entries of its own.
 */

const HEADER_BYTES = 8; // magic and version
const MEMORY_INFO = 1; // kind of subsection
const SECTION_NAME = "dylink.0";

/** The product's exports; all are addresses, byte strides and counts (see kernels/matmul.ts). */
export interface Kernel {
  matmul(
    a: number, aGroupStride: number, aRowStride: number, aInnerStride: number,
    b: number, bGroupStride: number, bRowStride: number,
    c: number,
    groups: number, rows: number, inner: number, columns: number,
  ): void;
}

/** The same module, marked as a side module without data. */
export function asSideModule(module: Uint8Array): Uint8Array {
  const name = new TextEncoder().encode(SECTION_NAME);
  const info = [MEMORY_INFO, 4, 0, 0, 0, 0]; // size and alignment of memory, then of the table
  const section = [0, 1 + name.length + info.length, name.length, ...name, ...info];
  const marked = new Uint8Array(module.length + section.length);
  marked.set(module.subarray(0, HEADER_BYTES));
  marked.set(section, HEADER_BYTES);
  marked.set(module.subarray(HEADER_BYTES), HEADER_BYTES + section.length);
  return marked;
}

/** What Pyodide's Emscripten module offers beyond its documented API; 0.27.7 is pinned. */
export interface SideModuleLoader {
  loadWebAssemblyModule(
    binary: Uint8Array, flags: object, name: string, scope: object, handle: number,
  ): Promise<Kernel>;
}

/** Loads the kernel into the memory of a running Pyodide. Throws if it cannot be joined. */
export async function joinMemory(loader: SideModuleLoader, module: Uint8Array): Promise<Kernel> {
  const flags = { loadAsync: true, global: false, nodelete: true, allowUndefined: false };
  const kernel = await loader.loadWebAssemblyModule(asSideModule(module), flags, "matmul", {}, 0);
  if (typeof kernel.matmul !== "function") throw new Error("the kernel has no matmul");
  return kernel;
}
