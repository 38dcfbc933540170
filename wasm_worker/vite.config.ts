/**
 * Builds the page: everything that it will ever load, from one origin.
 *
 * Beside the bundle go the files of Pyodide, the vendored numpy wheel and a lock that names only
 * this wheel. A wheel whose sha256 is not the one in Pyodide's own lock stops the build.
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { defineConfig, type Plugin } from "vite";
import { codings } from "./codings.ts";
import { licenses } from "./licenses.ts";

const require = createRequire(import.meta.url);
const PYODIDE = dirname(require.resolve("pyodide/package.json"));
const PYODIDE_FILES = ["pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip"];
const PACKAGES = ["numpy"];

interface PackageLock {
  info: Record<string, string>;
  packages: Record<string, { file_name: string; sha256: string }>;
}

function pythonRuntime(): Plugin {
  return {
    name: "python-runtime",
    apply: "build",
    generateBundle() {
      const emit = (name: string, source: Uint8Array | string): void => {
        this.emitFile({ type: "asset", fileName: `pyodide/${name}`, source });
      };
      for (const name of PYODIDE_FILES) emit(name, readFileSync(join(PYODIDE, name)));
      const lock = JSON.parse(
        readFileSync(join(PYODIDE, "pyodide-lock.json"), "utf8"),
      ) as PackageLock;
      const packages: PackageLock["packages"] = {};
      for (const name of PACKAGES) {
        const entry = lock.packages[name];
        if (!entry) throw new Error(`Pyodide's lock knows no ${name}`);
        const wheel = readFileSync(join(import.meta.dirname, "vendor", entry.file_name));
        const sha256 = createHash("sha256").update(wheel).digest("hex");
        if (sha256 !== entry.sha256) {
          throw new Error(`vendor/${entry.file_name}: sha256 ${sha256}, and not ${entry.sha256}`);
        }
        packages[name] = entry;
        emit(entry.file_name, wheel);
      }
      emit("pyodide-lock.json", JSON.stringify({ info: lock.info, packages }));
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [pythonRuntime(), licenses(), codings()],
  // the page's policy allows no data: addresses
  build: {
    outDir: "build/site",  // `make page` takes it from there, once it is whole
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  worker: { format: "es" },
  test: { include: ["test/**/*.test.ts"] },
} as import("vitest/config").ViteUserConfig);
