/** The canonical kernels in Pyodide, outside a browser: the hashes that every machine must have. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { loadPyodide, type PyodideInterface } from "pyodide";
import { beforeAll, expect, test } from "vitest";
import { joinMemory, type SideModuleLoader } from "../src/kernel";

const HERE = join(import.meta.dirname, "..");
const ROOT = join(HERE, "..");
const RUNTIME = dirname(createRequire(import.meta.url).resolve("pyodide/package.json"));
const WHEEL = join(HERE, "vendor/numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl");
const LOAD_MS_MAX = 120_000;
const GOLDEN_FILE = join(ROOT, "tests/golden/recompute.json");
const GOLDEN = JSON.parse(readFileSync(GOLDEN_FILE, "utf8")) as object;

let python: PyodideInterface;

beforeAll(async () => {
  python = await loadPyodide({ indexURL: RUNTIME });
  python.unpackArchive(new Uint8Array(readFileSync(WHEEL)), "wheel");
  python.FS.mkdirTree("/home/pyodide/daa_node/spot_checks");
  for (const [path, name] of [
    ["daa_node/spot_checks/recompute.py", "daa_node/spot_checks/recompute.py"],
    ["daa_node/spot_checks/pieces.py", "daa_node/spot_checks/pieces.py"],
    ["wasm_worker/src/in_page.py", "in_page.py"],
    ["tests/daa_node/spot_checks/golden_cases.py", "golden_cases.py"],
  ] as const) {
    python.FS.writeFile(`/home/pyodide/${name}`, readFileSync(join(ROOT, path)));
  }
}, LOAD_MS_MAX);

function hashes(matmul: unknown): object {
  const { recompute } = python.pyimport("in_page");
  const found = python.pyimport("golden_cases").hashes(recompute, matmul);
  return found.toJs({ dict_converter: Object.fromEntries }) as object;
}

test("numpy's product gives the hashes of every other machine", () => {
  expect(hashes(null)).toEqual(GOLDEN);
}, LOAD_MS_MAX);

test("so does the WASM product", async () => {
  const loader = (python as unknown as { _module: SideModuleLoader })._module;
  const kernel = await joinMemory(loader, readFileSync(join(HERE, "build/matmul.wasm")));
  expect(hashes(python.pyimport("in_page").matmul_by(kernel.matmul))).toEqual(GOLDEN);
}, LOAD_MS_MAX);

test("a product in another order does not", async () => {
  python.runPython(`
import numpy as np
def backwards(a, b):
    from daa_node.spot_checks import recompute
    return recompute.sequential_matmul(a[:, :, ::-1], b[:, ::-1])
`);
  expect(hashes(python.globals.get("backwards"))).not.toEqual(GOLDEN);
}, LOAD_MS_MAX);
